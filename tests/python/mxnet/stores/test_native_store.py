"""The native back end over a fake engine: what reaches it, in what order, and what never does."""

import logging
import pathlib
from typing import Dict, List, Tuple

import mxnet as mx
import numpy as np
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full, two_bits
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler._session import keys
from bytescheduler.mxnet._arrays import sparse as _sparse
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore
from bytescheduler.mxnet._stores.rescaling import Rescaling


def value_of(store: NativeStore, key: "int | str") -> float:
    out = full(-1)
    store.pull(key, out, 0, True)
    return float(out.asnumpy().max())


def test_keys_are_declared_once_with_dtype_and_size(store: NativeStore, worker: FakeWorker) -> None:
    store.init([7, 2], [full(1), mx.nd.zeros((5,), dtype="float16")])
    assert worker.declared == [(7, 0, 24), (2, 2, 10)]
    with pytest.raises(MXNetError, match="duplicate init of key 7"):
        store.init([8, 7], [full(1), full(1)])
    with pytest.raises(MXNetError, match="duplicate init of key 8") as raised:
        store.init([8, 8], [full(1), full(2)])
    assert str(raised.value) == snapshot(
        "duplicate init of key 8: this store has it already; each Trainer or Module needs a store "
        "of its own, such as ScheduledKVS() (stock servers take one of each process: let one "
        "Trainer have the parameters of all nets there)"
    )
    with pytest.raises(MXNetError, match="duplicate init of key 8"):
        store.broadcast([8, 8], [full(1), full(2)], [full(0), full(0)], 0)
    assert len(worker.declared) == 2


def test_a_wrong_priority_optimizer_or_updater_is_refused(store: NativeStore) -> None:
    store.init(1, full(1))
    for wrong in ("high", 2.5, None):
        for call in (
            lambda p: store.push(1, full(1), p),
            lambda p: store.pull(1, full(1), p, True),
            lambda p: store.pushpull(1, full(1), full(1), p),
        ):
            with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
                call(wrong)
    for wrong in ("sgd", None, mx.optimizer.SGD):
        with pytest.raises(TypeError, match="want an mx.optimizer.Optimizer, got"):
            store.set_optimizer(wrong)
    with pytest.raises(TypeError, match="got 3") as raised:
        store.set_updater(3)
    assert str(raised.value) == snapshot("want a function of key, gradient and weight, got 3")
    assert store.updater is None
    store.push(1, full(4), np.int64(-3))
    assert value_of(store, 1) == 4


def test_names_get_keys_that_every_worker_computes_alike(
    store: NativeStore, worker: FakeWorker
) -> None:
    store.init("fc1_weight", full(1))
    assert worker.declared[0][0] == 5984218189772628030
    assert 0 <= worker.declared[0][0] < 2**63


def test_two_names_with_one_hash_are_refused(
    store: NativeStore, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_number", lambda *_: 5)
    store.init("a", full(1))
    with pytest.raises(MXNetError, match="'a' and 'b' have the same hash"):
        store.init("b", full(1))
    assert len(worker.declared) == 1
    assert "b" not in store._keys._taken.values()


def test_only_rank_0_gives_the_first_value(store: NativeStore, worker: FakeWorker) -> None:
    worker.rank = 1
    store.init(1, full(5))
    store._tensors[1].recv[:] = 9  # what the engine would have written
    assert value_of(store, 1) == 9


def test_a_failed_init_leaves_the_key_free(store: NativeStore, worker: FakeWorker) -> None:
    worker.fail("for a test")
    with pytest.raises(MXNetError, match="for a test"):
        store.init(1, full(5))
    worker.failure = None
    store.init(1, full(5))
    assert value_of(store, 1) == 5


@pytest.mark.parametrize("devices", range(1, 12))
def test_devices_are_summed_and_rounded_as_stock(store: NativeStore, devices: int) -> None:
    random = np.random.RandomState(devices)
    values = [mx.nd.array(random.randn(50) * 10.0 ** random.randint(-4, 5)) for _ in range(devices)]
    stock, want, got = mx.kv.create("local"), mx.nd.zeros((50,)), mx.nd.zeros((50,))
    for kvs in (stock, store):
        kvs.init(1, mx.nd.zeros((50,)))
    stock.push(1, values)
    stock.pull(1, out=want)
    store.push(1, values, 0)
    store.pull(1, got, 0, True)
    np.testing.assert_array_equal(got.asnumpy(), want.asnumpy())
    # None of them has changed.
    random = np.random.RandomState(devices)
    for value in values:
        same = (random.randn(50) * 10.0 ** random.randint(-4, 5)).astype(np.float32)
        np.testing.assert_array_equal(value.asnumpy(), same)


def test_priorities_reach_the_engine_within_its_bounds(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.init(1, full(0))
    for priority in (0, -3, 2**40, -(2**40), np.int64(5)):
        store.push(1, full(1), priority)
    assert [call[2] for call in plugin.calls] == [0, -3, 2**31 - 1, -(2**31), 5]
    assert plugin.calls[0][:2] == (1, "1")


def test_the_keys_of_one_call_go_in_the_same_order_everywhere(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.init([9, 4, 6], [full(0)] * 3)
    store.push([6, 9, 4], [full(1)] * 3, 0)
    assert [call[0] for call in plugin.calls] == [4, 6, 9]


def test_the_names_of_one_call_go_in_the_order_of_their_init(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.init(["z", "a"], [full(0)] * 2)
    store.init("m", full(0))
    store.push(["m", "a", "z"], [full(1)] * 3, 0)
    assert [call[1] for call in plugin.calls] == ["'z'", "'a'", "'m'"]


def test_an_updater_sees_the_sum_and_keeps_the_store(
    store: NativeStore, plugin: FakePlugin
) -> None:
    plugin.factor = 3
    seen: List[object] = []

    def update(key: object, received: mx.nd.NDArray, stored: mx.nd.NDArray) -> None:
        seen.append((key, len(plugin.calls)))
        stored[:] = stored + received
        received[:] = 0  # its own affair

    store.init([1, 2], [full(10), full(20)])
    store.set_updater(update)
    store.push([1, 2], [full(1), full(2)], 0)
    assert (value_of(store, 1), value_of(store, 2)) == (13, 26)
    # All pushes come first: an updater that waits holds back none of them.
    assert seen == [(1, 2), (2, 2)]


def test_an_exception_in_an_updater_is_not_swallowed(store: NativeStore) -> None:
    def update(*_: object) -> None:
        raise KeyError("mine")

    store.init(1, full(0))
    store.set_updater(update)
    with pytest.raises(KeyError, match="mine"):
        store.push(1, full(1), 0)


def test_optimizer_states_survive_a_file(store: NativeStore, tmp_path: pathlib.Path) -> None:
    file = str(tmp_path / "states")
    for action in (store.load_optimizer_states, lambda f: store.save_optimizer_states(f, False)):
        with pytest.raises(AssertionError):
            action(file)
    store.init(1, full(0))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5, rescale_grad=1.0))
    store.push(1, full(1), 0)
    store.save_optimizer_states(file, dump_optimizer=True)
    store.push(1, full(0), 0)
    assert value_of(store, 1) == -1.5
    store.load_optimizer_states(file)
    store.push(1, full(0), 0)
    assert value_of(store, 1) == -2  # with the momentum of the first step
    assert store.updater.optimizer.momentum == 0.5


def test_a_second_optimizer_starts_afresh_and_keeps_the_weights(store: NativeStore) -> None:
    for want in (-1, -2):
        store.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5, rescale_grad=1.0))
        if want == -1:
            store.init(1, full(0))
        store.push(1, full(1), 0)
        assert value_of(store, 1) == want


def test_arrays_to_pull_into_may_have_another_dtype_and_kind(store: NativeStore) -> None:
    store.init(1, full(3))
    half, integer = mx.nd.zeros((2, 3), dtype="float16"), mx.nd.zeros((2, 3), dtype="int32")
    array = mx.np.zeros((2, 3))
    store.pull(1, [half, integer, array], 0, True)
    assert (half.asnumpy() == 3).all()
    assert (integer.asnumpy() == 3).all()
    assert array.tolist() == [[3, 3, 3]] * 2


def test_scalars_and_empty_arrays_are_tensors_too(store: NativeStore) -> None:
    with mx.util.np_shape(True):
        for key, shape in enumerate([(), (0, 4)]):
            value = mx.np.ones(shape)
            store.broadcast(key, value, value, 0)
            store.pushpull(key, value, None, 0)
            assert value.shape == shape
            assert value.tolist() in (1.0, [])


def test_recording_does_not_see_the_store(store: NativeStore) -> None:
    weight = full(1)
    weight.attach_grad()
    store.init(1, weight)
    with mx.autograd.record():
        loss = (weight * 3).sum()
        store.pushpull(1, weight, weight, 0)
    loss.backward()
    assert (weight.grad.asnumpy() == 3).all()


def test_a_weight_in_a_layout_of_mkldnn_travels_unharmed(store: NativeStore) -> None:
    net = mx.gluon.nn.Conv2D(64, 3, in_channels=32)
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    images, weight = mx.nd.ones((1, 32, 28, 28)), net.weight.data()
    want = weight.asnumpy().copy()
    for step, call in enumerate(
        (
            lambda: store.init("w", weight),
            lambda: store.pushpull("w", weight, weight, 0),
            lambda: store.push("w", [weight], 0),
        )
    ):
        for _ in range(4):  # inference blocks the weight's layout
            net(images).wait_to_read()
        call()
        out = mx.nd.zeros(weight.shape)
        store.pull("w", out, 0, True)
        np.testing.assert_array_equal(out.asnumpy(), want, err_msg=str(step))


def test_sparse_arrays_to_pull_into_are_skipped_with_one_line(
    store: NativeStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.init(1, full(3))
    dense, sparse = full(0), full(1).tostype("row_sparse")
    with caplog.at_level(logging.WARNING):
        store.pull(1, [sparse, dense], 0, True)
        store.pull(1, sparse, 0, True)
    assert (dense.asnumpy() == 3).all()
    assert [record.message for record in caplog.records] == snapshot(
        ["pull of key 1 skips arrays that are row_sparse"]
    )
    assert (sparse.asnumpy() == 1).all()
    store.pull(1, [sparse, dense], 0, False)
    assert (sparse.asnumpy() == 3).all()


def test_wrong_arrays_and_keys_are_refused_before_any_message(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.init([1, 2], [full(1), full(2)])
    for value, text in (
        (full(1, (3, 2)), r"key 2 was initialised with shape \(2, 3\)"),
        (full(1).astype("float64"), "dtype float64"),
        (full(1).tostype("csr"), "csr arrays are not supported"),
    ):
        with pytest.raises(MXNetError, match=text):
            store.push([1, 2], [full(1), value], 0)
        with pytest.raises(MXNetError, match=text):
            store.pushpull([1, 2], [full(1), [full(1), value]], None, 0)
    with pytest.raises(MXNetError, match="key 3 has not been initialised"):
        store.pushpull([1, 3], [full(1), full(1)], None, 0)
    with pytest.raises(MXNetError, match="has shape"):
        store.pushpull(1, full(1), full(1, (3, 2)), 0)
    with pytest.raises(MXNetError, match="int and str cannot be mixed"):
        store.push("one", full(1), 0)
    assert plugin.calls == []
    assert (value_of(store, 1), value_of(store, 2)) == (1, 2)


def test_rounds_are_compressed_from_the_call_on(store: NativeStore, plugin: FakePlugin) -> None:
    store.init([1, 2], [full(1), full(1)])
    store.push(1, full(2), 0)
    store.set_gradient_compression({"type": "2bit", "threshold": 0.25})
    store.push([1, 2], [full(2), full(2)], 0)
    store.set_gradient_compression({"type": "2bit"})
    store.pushpull(1, full(2), None, 0)
    assert plugin.codings == [None, two_bits(0.25), two_bits(0.25), two_bits(0.5)]


def test_codes_are_made_of_gradients_as_pushed(store: NativeStore, plugin: FakePlugin) -> None:
    """Another rescale_grad scales a gradient before its push only where it travels as it is."""
    sgd = mx.optimizer.SGD(learning_rate=1, rescale_grad=0.5, wd=0.0)
    store._rescaling = Rescaling(lambda number: [number, number])
    store._rescaling.agree(mx.optimizer.get_updater(sgd))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1, rescale_grad=1.0, wd=0.0))
    store.init(1, full(0))
    store.push(1, full(3), 0)
    assert (plugin.sent, value_of(store, 1)) == ([6], -3)
    store.set_gradient_compression({"type": "2bit"})
    store.push(1, full(3), 0)
    assert (plugin.sent, value_of(store, 1)) == ([6, 3], -6)
    store.pushpull(1, full(3), None, 0)
    assert (plugin.sent, value_of(store, 1)) == ([6, 3, 3], -9)


def test_with_codes_the_workers_compare_rescale_grad_too(
    store: NativeStore, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._rescaling = Rescaling(lambda number: [number, number])
    store._rescaling.agree(mx.optimizer.get_updater(mx.optimizer.SGD(rescale_grad=0.5)))
    compared: List[bool] = []
    monkeypatch.setattr(
        store._agreement, "pushed", lambda *_, rescales: compared.append(not rescales)
    )
    store.init(1, full(0))
    store.push(1, full(3), 0)
    store.set_gradient_compression({"type": "2bit"})
    store.push(1, full(3), 0)
    assert compared == [False, True]


def test_only_float32_is_compressed(store: NativeStore, plugin: FakePlugin) -> None:
    halves = mx.nd.ones((2, 3), dtype="float16")
    store.init([1, 2], [full(1), halves])
    store.set_gradient_compression({"type": "2bit"})
    for call in (store.push, lambda k, v, p: store.pushpull(k, v, None, p)):
        with pytest.raises(MXNetError, match="key 2: float16") as raised:
            call([1, 2], [full(1), halves], 0)
        assert str(raised.value) == snapshot(
            "key 2: float16 cannot be compressed to two bits with threshold 0.5, only float32"
        )
    assert plugin.calls == []


def test_compression_that_is_refused_changes_nothing(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.init(1, full(1))
    store.set_gradient_compression({"type": "2bit", "threshold": 2})
    with pytest.raises(MXNetError, match="want '2bit'"):
        store.set_gradient_compression({"type": "1bit"})
    store.push(1, full(1), 0)
    assert plugin.codings == [two_bits(2)]


def test_commands_reach_the_stock_servers_if_there_are_any(session: TensorSession) -> None:
    class Stock:
        type = "dist_device_sync"
        handle = "a handle"
        commands: "List[object]" = []

        def _send_command_to_servers(self, head: int, body: str) -> None:
            self.commands.append((head, body))

    NativeStore(session).send_command_to_servers(1, "nobody hears it")
    stock = Stock()
    store = NativeStore(session, stock)
    store.send_command_to_servers(5, "hello")
    assert stock.commands == [(5, "hello")]
    assert (store.type, store.handle) == ("dist_device_sync", "a handle")


# -- row_sparse ------------------------------------------------------------------------------------


def rows_of(values: "Dict[int, float]", shape: "Tuple[int, ...]" = (5, 2)) -> mx.nd.NDArray:
    """Return a row_sparse array that has exactly these rows, also those that are 0."""
    data = np.zeros((len(values), *shape[1:]), np.float32)
    for index, row in enumerate(sorted(values)):
        data[index] = values[row]
    if not values:
        return mx.nd.sparse.zeros("row_sparse", shape)
    return mx.nd.sparse.row_sparse_array((data, sorted(values)), shape=shape)


def pull_rows(store: NativeStore, rows: mx.nd.NDArray, key: "int | str" = 1) -> "Dict[int, float]":
    out = mx.nd.sparse.zeros("row_sparse", (5, 2))
    store.row_sparse_pull(key, out, 0, rows)
    return dict(zip(out.indices.asnumpy().tolist(), out.data.asnumpy()[:, 0].tolist()))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3)])
def test_rows_that_hold_zeros_count(shape: "Tuple[int, ...]", dtype: str) -> None:
    array = rows_of({1: 0, 3: 7}, shape).astype(dtype)
    if array.stype != "row_sparse":
        array = mx.nd.sparse.row_sparse_array(
            (np.zeros((2, *shape[1:])), [1, 3]), shape=shape, dtype=dtype
        )
    flags = _sparse.row_flags(array)
    assert flags.asnumpy().tolist() == [0, 1, 0, 1, 0]
    assert flags.dtype == np.float32
    again = _sparse.with_rows(mx.nd.zeros(shape, dtype=dtype), flags)
    assert again.indices.asnumpy().tolist() == [1, 3]
    assert _sparse.row_flags(mx.nd.zeros(shape, dtype=dtype)).asnumpy().tolist() == [1] * 5
    assert _sparse.row_flags(mx.nd.sparse.zeros("row_sparse", shape)).asnumpy().tolist() == [0] * 5


def test_row_ids_may_come_in_any_shape_order_number_and_dtype(store: NativeStore) -> None:
    store.init(1, mx.nd.array(np.arange(10).reshape(5, 2)).tostype("row_sparse"))
    for dtype in ("float32", "float16", "int32", "int64", "uint8"):
        assert pull_rows(store, mx.nd.array([[4, 1], [1, 4]], dtype=dtype)) == {1: 2, 4: 8}
    assert pull_rows(store, mx.nd.array([0])) == {0: 0}  # there, though it is 0
    assert pull_rows(store, mx.np.array([3, 2])) == {2: 4, 3: 6}
    with mx.util.np_shape(True):
        assert pull_rows(store, mx.nd.zeros((0,))) == {}
    for row in (-1, 5):
        with pytest.raises(MXNetError, match=f"key 1 has 5 rows, so row {row} cannot be pulled"):
            pull_rows(store, mx.nd.array([1, row]))


def test_one_row_ids_array_serves_many_outs_and_each_may_have_its_own(store: NativeStore) -> None:
    store.init(["a", "b"], [rows_of({1: 1, 2: 2}), full(4, (5, 2))])
    outs = [mx.nd.sparse.zeros("row_sparse", (5, 2)) for _ in range(3)]
    store.row_sparse_pull("a", outs, 0, mx.nd.array([2]))
    assert [out.asnumpy()[:, 0].tolist() for out in outs] == [[0, 0, 2, 0, 0]] * 3
    ids = [mx.nd.array([1]), mx.nd.array([2]), mx.nd.array([1, 2])]
    store.row_sparse_pull("a", outs, 0, ids)
    assert [out.indices.asnumpy().tolist() for out in outs] == [[1], [2], [1, 2]]
    store.row_sparse_pull(["a", "b"], outs[:2], 0, ids[:2])  # b is dense
    assert [out.asnumpy()[:, 0].tolist() for out in outs[:2]] == [[0, 1, 0, 0, 0], [0, 0, 4, 0, 0]]


def test_a_wrong_pull_of_rows_is_refused_with_the_reason(store: NativeStore) -> None:
    store.init(1, rows_of({1: 1}))
    out, ids = mx.nd.sparse.zeros("row_sparse", (5, 2)), mx.nd.array([1])
    for wrong in ((None, ids), (out, None), (out, (ids,)), ([out] * 3, [ids, ids])):
        with pytest.raises(AssertionError):
            store.row_sparse_pull(1, wrong[0], 0, wrong[1])
    for bad, text in (
        (full(0, (5, 2)), "needs row_sparse arrays to pull into, got a default one"),
        (mx.nd.sparse.zeros("row_sparse", (4, 2)), "has shape"),
    ):
        with pytest.raises(MXNetError, match=text):
            store.row_sparse_pull(1, [out, bad], 0, ids)


def test_without_an_updater_the_store_is_the_last_sum(store: NativeStore) -> None:
    store.init(1, rows_of({0: 9, 1: 9}))
    store.push(1, [rows_of({1: 1, 2: 2}), rows_of({2: 3, 3: 0})], 0)
    assert pull_rows(store, mx.nd.arange(5)) == {0: 0, 1: 1, 2: 5, 3: 0, 4: 0}
    out = mx.nd.sparse.zeros("row_sparse", (5, 2))
    store.pull(1, out, 0, False)  # exactly the rows that somebody pushed
    assert out.indices.asnumpy().tolist() == [1, 2, 3]
    value = rows_of({4: 6})
    store.pushpull(1, value, None, 0)
    assert value.asnumpy()[:, 0].tolist() == [0, 0, 0, 0, 6]
    store.push(1, rows_of({}), 0)
    assert set(pull_rows(store, mx.nd.arange(5)).values()) <= {0}


@pytest.mark.parametrize(
    ("optimizer", "options", "kind"),
    [
        ("sgd", {"momentum": 0.9, "wd": 0.1}, "default"),
        ("sgd", {"momentum": 0.9, "wd": 0.1}, "row_sparse"),
        ("adam", {"wd": 0.1}, "default"),
        ("adam", {"wd": 0.1}, "row_sparse"),
        ("adagrad", {}, "row_sparse"),  # these two have no lazy update of dense weights
        ("ftrl", {"wd": 0.1}, "row_sparse"),
    ],
)
def test_optimizers_change_the_pushed_rows_as_in_a_local_store(
    store: NativeStore, kind: str, optimizer: str, options: "Dict[str, float]"
) -> None:
    results = []
    start = mx.nd.array(np.random.RandomState(0).uniform(1, 2, (5, 2)))
    for kvs in (mx.kv.create("local"), store):
        kvs.init("w", start.tostype(kind))
        kvs.set_optimizer(mx.optimizer.create(optimizer, rescale_grad=1.0, **options))
        out = mx.nd.zeros((5, 2)) if kind == "default" else mx.nd.sparse.zeros(kind, (5, 2))
        for step in range(4):
            kvs.push("w", [rows_of({step: 1, 3: 0.5}), rows_of({3: 2, 0: 0})], priority=0)
        if kind == "default":
            kvs.pull("w", out, 0, True)
        else:
            kvs.row_sparse_pull("w", out, 0, row_ids=mx.nd.arange(5))
        results.append(out.asnumpy())
    np.testing.assert_array_equal(*results)
    assert (results[0][4] == start.asnumpy()[4]).all()  # nobody pushed it: not even decay
    assert (results[0][0] != start.asnumpy()[0]).all()  # pushed, if only zeros


def test_rows_go_beside_their_sum_and_dense_pushes_count_as_all_rows(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.init(1, full(1, (5, 2)))
    store.push(1, full(1, (5, 2)), 3)
    assert len(plugin.calls) == 1  # nobody pays for rows before the first row_sparse push
    store.push(1, rows_of({2: 1}), 3)
    store.push(1, full(1, (5, 2)), 3)
    assert [call[2] for call in plugin.calls] == [3] * 5
    assert len({call[0] for call in plugin.calls}) == 2
    out = mx.nd.sparse.zeros("row_sparse", (5, 2))
    store.pull(1, out, 0, False)
    assert out.indices.asnumpy().tolist() == [0, 1, 2, 3, 4]


# -- multi-precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["init", "optimizer"])
@pytest.mark.parametrize("kind", ["default", "row_sparse"])
def test_multi_precision_sums_and_stores_in_float32(
    store: NativeStore, worker: FakeWorker, plugin: FakePlugin, first: str, kind: str
) -> None:
    plugin.factor = 3

    def init() -> None:
        store.init("w", mx.nd.full((5, 2), 1, dtype="float16").tostype(kind))

    def set_optimizer() -> None:
        sgd = mx.optimizer.SGD(learning_rate=1, multi_precision=True, rescale_grad=1.0, wd=0.0)
        store.set_optimizer(sgd)

    for step in (init, set_optimizer) if first == "init" else (set_optimizer, init):
        step()
    gradient = mx.nd.full((5, 2), -(2.0**-13), dtype="float16")
    for _ in range(8):  # each by itself is lost in float16 beside 1
        store.push("w", gradient.tostype(kind), 0)
    half, single = mx.nd.zeros((5, 2), dtype="float16"), mx.nd.zeros((5, 2))
    store.pull("w", [half, single], 0, True)
    assert (half.asnumpy() == np.float16(1 + 24 * 2.0**-13)).all()
    assert (single.asnumpy() == 1 + 24 * 2.0**-13).all()
    with pytest.raises(MXNetError, match="float16.* float32") as raised:
        store.push("w", single, 0)
    assert str(raised.value) == snapshot(
        "key 'w' was initialised with shape (5, 2) and dtype float16, but this array has shape "
        "(5, 2) and dtype float32"
    )
    assert {call[0] for call in plugin.calls} <= {
        key for key, dtype, _ in worker.declared if not dtype
    }


def test_without_multi_precision_half_stays_half(store: NativeStore, worker: FakeWorker) -> None:
    store.init(1, mx.nd.zeros((4,), dtype="float16"))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    assert worker.declared == [(1, 2, 8)]


def test_rows_are_not_compressed(store: NativeStore, plugin: FakePlugin) -> None:
    store.init([1, 2], [full(0)] * 2)
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    with pytest.raises(MXNetError, match="key 2: row_sparse arrays cannot be compressed"):
        store.push([1, 2], [full(1), full(1).tostype("row_sparse")], 0)
    assert plugin.calls == []


@pytest.mark.parametrize("devices", [1, 2, 3, 6])
def test_rows_of_devices_are_summed_and_rounded_as_stock(store: NativeStore, devices: int) -> None:
    """Stock adds row_sparse arrays in another order than dense ones."""
    random = np.random.RandomState(devices)
    values = []
    for _ in range(devices):
        rows = np.sort(random.choice(20, random.randint(15, 21), replace=False))
        data = random.randn(len(rows), 50) * 10.0 ** random.randint(-4, 5)
        data = data.astype(np.float32)
        values.append(mx.nd.sparse.row_sparse_array((data, rows), shape=(20, 50)))
    sums = []
    for kvs in (mx.kv.create("local"), store):
        kvs.init(1, mx.nd.zeros((20, 50)).tostype("row_sparse"))
        kvs.push(1, values, 0)
        sums.append(mx.nd.zeros((20, 50)).tostype("row_sparse"))
        kvs.row_sparse_pull(1, out=sums[-1], priority=0, row_ids=mx.nd.arange(20))
    np.testing.assert_array_equal(sums[1].asnumpy(), sums[0].asnumpy())
    assert np.abs(sums[1].asnumpy()).max() > 0
