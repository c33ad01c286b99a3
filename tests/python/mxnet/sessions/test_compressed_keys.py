"""Whole tensors over a stock store that compresses: what it gets, and what it cannot spoil."""

from typing import Dict, Iterator, List

import mxnet as mx
import numpy as np
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, TwoBitStore, full, two_bits
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler._native import Coding
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._sessions import compressed_keys, framework
from bytescheduler.mxnet._sessions.compressed_keys import CompressedKeys, threshold_for_stock
from bytescheduler.mxnet._sessions.stock_session import StockSession
from bytescheduler.mxnet._stores.agreement import Agreement
from bytescheduler.mxnet._stores.native_store import NativeStore

PARAMS = {"type": "2bit", "threshold": 0.5}


def tensor(key: int, like: mx.nd.NDArray) -> Tensor:
    made = Tensor(key, key, like, open_copier())
    made.take(like)
    return made


def test_each_tensor_is_one_key_with_sums_in_two_bits() -> None:
    inner = TwoBitStore()
    keys = CompressedKeys(inner)
    keys.compress(PARAMS, 0.5)
    one, other = tensor(70, full(1)), tensor(80, full(2, (3,)))
    keys.declare([one])
    keys.declare([other])
    assert sorted(inner.values) == [65534, 65535]
    assert (one.recv.asnumpy() == 1).all()
    for want in (0, 0.5):
        other.send[:] = 0.25
        keys.push_pull(other, -3)
        assert (other.recv.asnumpy() == want).all()
    assert inner.calls == ["compress", "init", "init", "push 65534 -3", "push 65534 -3"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_first_values_of_any_dtype_come_from_rank_0(dtype: str) -> None:
    value = mx.nd.array([1, 1 / 3, -2], dtype=dtype)
    first = TwoBitStore()
    CompressedKeys(first).declare([tensor(5, value)])
    second = TwoBitStore(rank=1)
    second.theirs = first.values
    mine = tensor(5, mx.nd.zeros((3,), dtype=dtype))
    CompressedKeys(second).declare([mine])
    np.testing.assert_array_equal(mine.recv.asnumpy(), value.asnumpy())


class Numbers(Tensor):
    one_sender = True


def test_numbers_travel_bit_by_bit_round_after_round_and_under_any_threshold() -> None:
    inner = TwoBitStore()
    keys = CompressedKeys(inner)
    keys.compress(PARAMS, 0.5)
    keys.declare([Numbers("optimizers", 9, mx.nd.zeros((2, 2), dtype="float64"), open_copier())])
    random = np.random.RandomState(3)
    for step in range(40):
        if step in (10, 20):
            threshold = 0.3 if step == 10 else 7.0
            keys.compress({"type": "2bit", "threshold": threshold}, threshold)
        numbers = random.normal(0, 1e6, (2, 2)) * (step % 3 != 0)
        total = np.full((2, 2), np.nan)
        pending = keys.start_sum(9, numbers, total)
        assert not pending.over()
        assert pending.wait_for(1)
        np.testing.assert_array_equal(total, numbers)


class Empty(Tensor):
    size_bytes = 0  # type: ignore[assignment]


def test_nothing_travels_of_tensors_without_elements() -> None:
    inner = TwoBitStore()
    keys = CompressedKeys(inner)
    keys.compress(PARAMS, 0.5)
    empty = Empty(1, 1, full(0), open_copier())
    keys.declare([empty])
    keys.push_pull(empty, 0)
    keys.barrier()
    assert inner.calls == ["compress", "barrier"]


def test_a_store_without_keys_left_says_so_before_it_takes_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compressed_keys, "_MAX_KEYS", 2)
    inner = TwoBitStore()
    keys = CompressedKeys(inner)
    with pytest.raises(MXNetError, match="a store has at most 2 keys"):
        keys.declare([tensor(key, full(0)) for key in range(3)])
    assert inner.calls == []


def test_thresholds_that_stock_servers_would_get_as_0_are_refused() -> None:
    for threshold in (6e-7, 1.0):
        assert threshold_for_stock(two_bits(threshold)) == np.float32(threshold)
    for threshold in (float(np.float32(5e-7)), 1e-9):
        with pytest.raises(MXNetError, match=f"threshold {threshold:g} .* told six decimals"):
            threshold_for_stock(two_bits(threshold))


def test_another_codec_is_refused() -> None:
    other = Coding.of((77).to_bytes(4, "little") + bytes(9))
    with pytest.raises(MXNetError, match="compressed by codec 77, only MXNet's own .*2bit"):
        threshold_for_stock(other)


def test_sums_that_should_travel_coded_are_refused() -> None:
    with pytest.raises(MXNetError, match="sums of stock servers travel plain, so leave it out"):
        threshold_for_stock(Coding("2bit", {"threshold": "0.1", "pull": "bf16"}))


# -- and the native back end above it ---------------------------------------------------------


@pytest.fixture
def inner() -> TwoBitStore:
    return TwoBitStore()


@pytest.fixture
def said() -> "List[str]":
    return []


@pytest.fixture
def store(inner: TwoBitStore, said: "List[str]") -> Iterator[NativeStore]:
    session = StockSession(FakeWorker(), FakePlugin(), inner, said.append)  # type: ignore[arg-type]
    yield NativeStore(session, inner)
    session.close()


def value_of(store: NativeStore, key: int) -> "List[float]":
    out = full(-1, (2,))
    store.pull(key, out, 0, True)
    return [float(number) for number in out.asnumpy()]


def test_values_and_states_stay_where_they_are(store: NativeStore, inner: TwoBitStore) -> None:
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5))
    halves = mx.nd.ones((2,), dtype="float16")
    rows = full(3, (2, 1)).tostype("row_sparse")
    store.init([1, 2, 3], [full(1, (2,)), halves, rows])
    store.pushpull(1, full(4, (2,)), None, 0)
    store.push(3, full(1, (2, 1)).tostype("row_sparse"), 0)
    assert value_of(store, 1) == [-3, -3]
    assert store._session.counts_rows
    store.set_gradient_compression(PARAMS)
    assert not store._session.counts_rows
    assert inner.calls == ["compress", "init"]
    assert (value_of(store, 1), value_of(store, 2)) == ([-3, -3], [1, 1])
    store.push(1, full(9, (2,)), -7)
    # Momentum from before: 0.5 * 4, and 0.5 of the nine.
    assert value_of(store, 1) == [-5.5, -5.5]
    assert inner.calls[2:] == ["push 65535 -7"]
    store.push(3, full(9, (2, 1)), 0)
    out = full(0, (2, 1)).tostype("row_sparse")
    store.row_sparse_pull(3, out, 0, mx.nd.array([0, 1]))
    assert out.asnumpy().tolist() == [[1], [1]]  # 3 - 1 - (0.5 + 0.5)
    for key, value in ((2, halves), (3, rows)):
        with pytest.raises(MXNetError, match=f"key {key}: .* cannot be compressed to two bits"):
            store.push(key, value, 0)


def test_another_threshold_and_later_keys(
    store: NativeStore, inner: TwoBitStore, said: "List[str]"
) -> None:
    store.set_gradient_compression(PARAMS)
    assert inner.calls == ["compress"]
    assert said == snapshot(
        [
            "MXNet's dist_sync store carries the bytes from here on, unscheduled: "
            "stock servers take compressed tensors whole only"
        ]
    )
    store.init([1, 3], [full(1, (2,)), full(3, (2, 1)).tostype("row_sparse")])
    out = full(0, (2, 1)).tostype("row_sparse")
    store.pull(3, out, 0, ignore_sparse=False)
    assert out.asnumpy().tolist() == [[3], [3]]
    store.set_gradient_compression({"type": "2bit", "threshold": 2})
    store.pushpull(1, full(9, (2,)), None, 0)
    assert value_of(store, 1) == [2, 2]
    store.barrier()
    assert inner.calls == ["compress", "init", "compress", "barrier", "push 65535 0", "barrier"]
    assert len(said) == 1


def test_compression_of_stock_servers_takes_every_size_and_stays(store: NativeStore) -> None:
    store.init([1, 2], [full(1, (2,)), mx.nd.ones((2,), dtype="float16")])
    store.set_gradient_compression({"compressor": None})
    store.set_gradient_compression({"compressor": "2bit", "threshold": 0.5})
    with pytest.raises(MXNetError, match="so gradient compression cannot be turned off any more"):
        store.set_gradient_compression({"compressor": None})
    with pytest.raises(MXNetError, match="key 2: float16 cannot be compressed to two bits"):
        store.push(2, mx.nd.ones((2,), dtype="float16"), 0)
    store.pushpull(1, full(9, (2,)), None, 0)
    assert value_of(store, 1) == [0.5, 0.5]


@pytest.mark.parametrize("late", [False, True], ids=["first", "another"])
def test_a_threshold_that_is_refused_changes_nothing(
    store: NativeStore, inner: TwoBitStore, *, late: bool
) -> None:
    store.init([1], [full(1, (2,))])
    if late:
        store.set_gradient_compression(PARAMS)
    before = list(inner.calls)
    with pytest.raises(MXNetError, match="threshold 1e-07 .* told six decimals"):
        store.set_gradient_compression({"type": "2bit", "threshold": 1e-7})
    assert inner.calls == before
    assert store._session.counts_rows is not late
    store.pushpull(1, full(0.75, (2,)), None, 0)
    assert value_of(store, 1) == ([0.5, 0.5] if late else [0.75, 0.75])


@pytest.mark.parametrize(
    "params",
    [
        {"compressor": "bf16"},
        {"compressor": "fp16"},
        {"compressor": "onebit", "scaling": True, "ef": "vanilla"},
        {"compressor": "dithering", "k": 7},
        {"compressor": "int8"},
        {"compressor": "topk", "k": 0.01, "ef": "vanilla"},
        {"compressor": "randomk", "k": 0.01, "seed": 3},
    ],
    ids=lambda params: str(params["compressor"]),
)
def test_all_other_methods_are_refused_and_change_nothing(
    store: NativeStore, inner: TwoBitStore, params: Dict[str, object]
) -> None:
    """The error names what stock servers have, and what would have servers of ours."""
    store.init([1], [full(1, (2,))])
    with pytest.raises(MXNetError) as raised:
        store.set_gradient_compression(params)
    for wanted in (str(params["compressor"]), "'2bit'", "bslaunch"):
        assert wanted in str(raised.value)
    assert inner.calls == []
    store.pushpull(1, full(0.75, (2,)), None, 0)
    assert value_of(store, 1) == [0.75, 0.75]


def test_too_many_keys_are_refused_before_anything_is_compressed(
    store: NativeStore, inner: TwoBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_keys, "_MAX_KEYS", 2)
    store.init([1, 2, 3], [full(1, (2,))] * 3)
    with pytest.raises(MXNetError, match="a store has at most 2 keys"):
        store.set_gradient_compression(PARAMS)
    assert inner.calls == []
    assert store._session.counts_rows
    store.pushpull(1, full(0.75, (2,)), None, 0)
    assert value_of(store, 1) == [0.75, 0.75]


class Note:
    """A sum that the other workers have still to add to; notes when it is waited for."""

    def __init__(self, events: "List[str]") -> None:
        self.events = events

    def over(self) -> bool:
        return False

    def wait(self) -> None:
        self.events.append("note")


class EventfulWorker(FakeWorker):
    """A worker of two, which notes the order of what is waited for."""

    def __init__(self, events: "List[str]") -> None:
        super().__init__()
        self.num_workers = 2
        self.events = events

    def start_push_pull(self, *_: object, owner: object, priority: int) -> Note:
        return Note(self.events)

    def barrier(self) -> None:
        super().barrier()
        self.events.append("barrier")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> "List[Coding]":
    """Codings that this worker compared with those of others, which have the same."""
    codings: List[Coding] = []
    monkeypatch.setattr(Agreement, "same_coding", lambda _, mine: codings.append(mine))
    return codings


def test_codings_are_compared_as_soon_as_workers_can_talk(
    store: NativeStore, compared: "List[Coding]"
) -> None:
    store.set_gradient_compression(PARAMS)
    assert compared == []
    store.init([1], [full(1, (2,))])
    store.init([2], [full(1, (2,))])
    assert compared == [two_bits(0.5)]
    store.set_gradient_compression({"type": "2bit", "threshold": 2})
    assert compared == [two_bits(0.5), two_bits(2)]


def test_compression_waits_for_notes_and_with_a_deadline_for_all_workers(
    compared: "List[Coding]",
) -> None:
    inner = TwoBitStore()
    worker = EventfulWorker(inner.calls)
    store = NativeStore(StockSession(worker, FakePlugin(), inner), inner)  # type: ignore[arg-type]
    store.init([1], [full(1, (2,))])
    store.push(1, full(1, (2,)), 0)
    inner.calls.clear()  # the barrier of init
    store.set_gradient_compression(PARAMS)
    assert inner.calls == ["note", "barrier", "compress", "init"]
    inner.calls.clear()
    store.set_gradient_compression(PARAMS)
    assert inner.calls == ["compress", "barrier"]
    assert compared == [two_bits(0.5)] * 2
    assert worker.barriers == 2
    store.close(None)


def test_workers_still_compare_their_optimizers_under_compression(
    inner: TwoBitStore, compared: "List[Coding]", monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = FakeWorker()
    worker.num_workers = 2
    store = NativeStore(StockSession(worker, FakePlugin(), inner), inner)  # type: ignore[arg-type]
    store.set_gradient_compression(PARAMS)
    store.init([1], [full(1, (2,))])
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    # The second round looks at what the first said, which is that the other worker has set none.
    for _ in range(2):
        store.push(1, full(9, (2,)), 0)
    with pytest.raises(MXNetError, match="worker 0 .* worker 1") as raised:
        store.push(1, full(9, (2,)), 0)
    assert str(raised.value) == snapshot(
        "worker 0 gave up: worker 0 has set an optimizer that worker 1 does not have: call "
        "set_optimizer on every worker, or _barrier() on every worker after it"
    )
    monkeypatch.setattr(framework, "abandon", lambda _: None)
    store.close(None)
