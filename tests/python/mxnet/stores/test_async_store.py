"""The back end of dist_async over a fake engine: what reaches the servers, and what never does."""

from typing import Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full, two_bits
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler._hosting import pickles
from bytescheduler._native import Coding, MXNetRounds
from bytescheduler.mxnet._optimizer.text import for_servers
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores import rates
from bytescheduler.mxnet._stores.async_store import AsyncStore


class Worker(FakeWorker):
    """Keeps what is declared whole, and optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: List[str] = []
        self.pickles: List[bytes] = []
        self.whole: List[Tuple[int, str, bool]] = []

    def broadcast_whole(
        self, items: "List[Tuple[int, int, int, int, str, bool]]", owner: object = None
    ) -> None:
        self.whole += [(item[0], item[4], item[5]) for item in items]

    def set_optimizer(self, text: str, pickle: bytes) -> None:
        self.texts.append(text)
        self.pickles.append(pickle)


class Plugin(FakePlugin):
    """Keeps updates: key, whether it pushes and pulls, and its rates."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: List[Tuple[int, bool, bool, object]] = []

    def update(
        self,
        rounds: MXNetRounds,
        priority: int,
        *,
        pushes: bool,
        pulls: bool,
        rates: object,
        coding: Optional[Coding] = None,
    ) -> None:
        self.codings.append(coding)
        self.updates.append((rounds.key, pushes, pulls, rates))
        if pushes and pulls:
            self.push_pull(rounds, priority)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def plugin() -> Plugin:
    return Plugin()


@pytest.fixture
def store(session: TensorSession) -> AsyncStore:
    return AsyncStore(session)


def test_keys_are_declared_asynchronous(store: AsyncStore, worker: Worker) -> None:
    store.set_optimizer(mx.optimizer.SGD())
    store.init(7, full(1))
    assert worker.modes == [True]
    assert worker.whole == []
    with pytest.raises(MXNetError, match="key 8: ") as raised:
        store.init([9, 8], [full(1), full(1).astype("int32")])
    assert str(raised.value) == snapshot(
        "key 8: dist_async cannot update int32, only float32, float64, float16"
    )
    assert len(worker.modes) == 1


def test_keys_stay_whole_unless_the_optimizer_is_known_to_be_native(
    store: AsyncStore, worker: Worker
) -> None:
    about = '{"key":7,"shape":[2,3]}'
    store.init(7, full(1))
    store.set_optimizer(mx.optimizer.LAMB())
    store.init(8, full(1))
    assert worker.whole == [(7, about, False), (8, about.replace("7", "8"), False)]
    store.set_optimizer(mx.optimizer.SGD())
    store.init(9, full(1))
    assert worker.modes == [True]
    assert len(worker.whole) == 2


def test_a_key_that_cannot_be_described_is_cut(store: AsyncStore, worker: Worker) -> None:
    store.init("☃" * 400, full(1))
    assert worker.modes == [True]
    assert worker.whole == []


def test_each_call_is_one_operation(store: AsyncStore, plugin: Plugin) -> None:
    store.init(7, full(1))
    value, out = full(2), full(0)
    store.push(7, value, 0)
    store.pull(7, out, 0, True)
    store.pushpull(7, value, out, 0)
    assert plugin.updates == [
        (7, True, False, None),
        (7, False, True, None),
        (7, True, True, None),
    ]
    assert (out.asnumpy() == 2).all()


def test_rates_are_taken_at_the_moment_of_the_push(
    store: AsyncStore, worker: Worker, plugin: Plugin
) -> None:
    sgd = mx.optimizer.SGD(
        learning_rate=0.5, wd=0.25, momentum=0.75, param_idx2name={7: "w_weight"}
    )
    store.set_optimizer(sgd)
    assert worker.texts == ["sgd learning_rate=0.5 wd=0.25 rescale_grad=1.0 momentum=0.75"]
    store.init(7, full(1))
    store.push(7, full(1), 0)
    sgd.set_learning_rate(0.125)
    sgd.set_lr_mult({"w_weight": 2.0})
    sgd.set_wd_mult({"w_weight": 4.0})
    sgd.rescale_grad = 8
    store.push(7, full(1), 0)
    assert [update[3] for update in plugin.updates] == [(0.5, 0.25, 1.0), (0.25, 1.0, 8.0)]
    sgd.set_learning_rate(float("nan"))
    with pytest.raises(MXNetError, match="key 7: learning rate"):
        store.push(7, full(1), 0)
    assert len(plugin.updates) == 2


def test_a_scheduler_sees_the_updates_of_this_worker(store: AsyncStore, plugin: Plugin) -> None:
    scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0)
    store.set_optimizer(mx.optimizer.SGD(lr_scheduler=scheduler))
    store.init(7, full(1))
    for _ in range(5):
        store.push(7, full(1), 0)
    rates = [update[3][0] for update in plugin.updates]  # type: ignore[index]
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_pushes_are_compressed_from_the_call_on(store: AsyncStore, plugin: Plugin) -> None:
    store.init([1, 2], [full(1), mx.nd.ones((4, 2)).tostype("row_sparse")])
    store.push(1, full(1), 0)
    store.set_gradient_compression({"type": "2bit", "threshold": 0.25})
    store.push(1, full(1), 0)
    assert plugin.codings == [None, two_bits(0.25)]
    for key, value in ((1, rows_of((2, 3), 1)), (2, rows_of((4, 2), 1)), (2, full(1, (4, 2)))):
        with pytest.raises(MXNetError, match=f"key {key}: row_sparse arrays cannot be compressed"):
            store.push(key, value, 0)
    assert plugin.codings == [None, two_bits(0.25)]


LARGE = (128, 128)  # 64 KiB: from this size on keys are compressed
ONEBIT = {"compressor": "onebit", "scaling": True, "ef": "vanilla"}


@pytest.mark.parametrize("is_native", [True, False], ids=["in partitions", "whole"])
def test_keys_that_are_initialised_later_are_compressed(
    store: AsyncStore, worker: Worker, plugin: Plugin, is_native: bool
) -> None:
    if is_native:
        store.set_optimizer(mx.optimizer.SGD())
    store.init([1, 2], [full(0, LARGE), full(0)])
    store.set_gradient_compression(ONEBIT)
    store.init([3, 4], [full(0, LARGE), full(0)])
    for key, shape in ((1, LARGE), (2, full(0).shape), (3, LARGE), (4, full(0).shape)):
        store.push(key, full(1, shape), 0)
    store.pull(3, [full(0, LARGE)], 0, ignore_sparse=True)
    codings = list(map(str, plugin.codings))
    assert codings == [
        *("None", "None", "compressed to onebit scaled, ef vanilla", "None"),
        "None",  # the pull: weights travel as they are
    ]


def test_keys_that_stay_as_they_are_get_a_line(
    store: AsyncStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.init([1, 2], [full(0), full(0, LARGE)])
    store.set_gradient_compression({"type": "2bit"})  # which takes any partitions
    assert caplog.messages == []
    store.set_gradient_compression(ONEBIT)
    assert caplog.messages == snapshot(
        [
            "dist_async: gradients of keys that were initialised before compression was set "
            "travel as they are, such as key 2: set it before init"
        ]
    )


def test_an_optimizer_that_suits_no_signs_gets_a_line(
    store: AsyncStore, caplog: pytest.LogCaptureFixture
) -> None:
    rates._tell_unsuited.cache_clear()
    store.set_gradient_compression(ONEBIT)
    store.set_optimizer(mx.optimizer.Adam())
    assert "Adam divides by the size of gradients" in caplog.messages[0]


@pytest.mark.parametrize(
    ("params", "wrong"),
    [
        ({**ONEBIT, "ef": "corrected"}, "ef 'corrected' of gradient compression follows a lear"),
        ({"compressor": "randomk", "k": 0.5, "ef": "sparse"}, "ef 'sparse' of gradient compr"),
        ({**ONEBIT, "pull": "bf16"}, "pull bf16: its servers answer with weights, which travel"),
        ({"type": "2bit", "pull": "same"}, "pull same: its servers answer with weights"),
        ({**ONEBIT, "momentum": "nesterov", "mu": 0.9}, "has no place in dist_async"),
    ],
)
def test_compression_that_needs_rounds_in_common_is_refused(
    store: AsyncStore, params: "Dict[str, object]", wrong: str
) -> None:
    with pytest.raises(MXNetError, match=wrong):
        store.set_gradient_compression(params)
    store.set_gradient_compression({**ONEBIT, "pull": "plain"})


def test_keys_of_other_dtypes_are_refused_by_name(store: AsyncStore, plugin: Plugin) -> None:
    store.set_gradient_compression({"compressor": "bf16"})
    with pytest.raises(MXNetError, match="key 1: dist_async keeps float16 as it is, so its grad"):
        store.init(1, mx.nd.zeros((256, 128), dtype="float16"))
    store.init([2, 3], [mx.nd.zeros(LARGE, dtype="float64"), mx.nd.zeros((2,), dtype="float16")])
    with pytest.raises(MXNetError, match="key 2: float64 cannot be compressed to bf16, only"):
        store.push(2, mx.nd.zeros(LARGE, dtype="float64"), 0)
    store.push(3, mx.nd.zeros((2,), dtype="float16"), 0)
    assert plugin.codings == [None]


def test_a_key_of_half_precision_that_is_there_stays_plain(
    store: AsyncStore,
    plugin: Plugin,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    values = mx.nd.zeros((256, 128), dtype="float16")
    store.init(1, values)
    store.set_gradient_compression(ONEBIT)
    assert "before compression was set travel as they are, such as key 1" in caplog.text
    before = store._tensors[1]
    store.push(1, values, 0)
    store.pushpull(1, values, values, 0)
    assert store._tensors[1] is before
    assert set(plugin.codings) == {None}
    store.init(2, mx.nd.zeros(LARGE))
    store.push(2, mx.nd.zeros(LARGE), 0)
    assert plugin.codings[-1] is not None
    assert "compressing none of 1 tensors to onebit" in capfd.readouterr().err


def rows_of(shape: "Tuple[int, int]", *wanted: int) -> mx.nd.NDArray:
    data = np.ones((len(wanted), shape[1]), np.float32)
    return mx.nd.sparse.row_sparse_array((data, list(wanted)), shape=shape)


def test_row_sparse_keys_travel_with_their_rows_and_are_pythons(
    store: AsyncStore, worker: Worker, plugin: Plugin
) -> None:
    store.set_optimizer(mx.optimizer.SGD())  # native, but not for rows
    store.init(1, full(3, (4, 2)).tostype("row_sparse"))
    assert worker.whole == [(1, '{"key":1,"shape":[4,2],"rows":true}', True)]
    out = mx.nd.sparse.zeros("row_sparse", (4, 2))
    store.row_sparse_pull(1, out, 0, mx.nd.array([3, 1, 3]))
    assert out.indices.asnumpy().tolist() == [1, 3]
    assert (out.data.asnumpy() == 3).all()
    assert plugin.updates == [(1, False, True, None)]
    store.pushpull(1, [rows_of((4, 2), 1, 3), rows_of((4, 2), 3)], full(0, (4, 2)), 0)
    tensor = store._tensors[1]
    assert tensor.send.asnumpy().tolist() == [0, 0, 1, 1, 0, 0, 2, 2, 0, 1, 0, 2]
    assert tensor.size_bytes == 12 * 4


def test_a_dense_key_gets_rows_at_its_first_row_sparse_push(
    store: AsyncStore, worker: Worker, plugin: Plugin
) -> None:
    store.set_optimizer(mx.optimizer.SGD())
    store.init("w", full(3, (4, 2)))
    assert worker.whole == []
    for _ in range(2):
        store.push("w", rows_of((4, 2), 2), 0)
    ((engine_key, about, hosted),) = worker.whole
    assert (about, hosted) == ('{"key":"w","shape":[4,2],"rows":true}', True)
    (fetch, *pushes) = plugin.updates
    assert fetch[1:3] == (False, True), "rank 0 takes the weights as they are"
    assert [push[:3] for push in pushes] == [(engine_key, True, False)] * 2
    out = full(0, (4, 2))
    store.pull("w", out, 0, True)
    assert (out.asnumpy() == 3).all()


def test_rows_that_cannot_be_in_one_piece_are_refused(store: AsyncStore) -> None:
    with pytest.raises(MXNetError, match="row_sparse arrays of at most 1 GiB"):
        store.init("n" * 1100, full(3, (4, 2)).tostype("row_sparse"))


def test_states_stay_on_the_servers(store: AsyncStore) -> None:
    for call in (lambda: store.save_optimizer_states("x", False), lambda: _load(store)):
        with pytest.raises(AssertionError, match="distributed"):
            call()


def _load(store: AsyncStore) -> None:
    store.load_optimizer_states("x")


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (mx.optimizer.NAG(momentum=0.5), "nag|momentum=0.5"),
        (mx.optimizer.Adam(epsilon=1e-6), "adam|beta1=0.9 beta2=0.999 epsilon=1e-06"),
        (mx.optimizer.AdaGrad(eps=0.5, clip_gradient=2), "adagrad|clip_gradient=2.0 epsilon=0.5"),
        (
            mx.optimizer.RMSProp(centered=True, clip_weights=3),
            "rmsprop|gamma1=0.9 gamma2=0.9 epsilon=1e-08 centered=1.0 clip_weights=3.0",
        ),
        (mx.optimizer.Ftrl(lamda1=0.5, beta=2), "ftrl|lamda1=0.5 beta=2.0"),
        (mx.optimizer.Signum(wd_lh=0.5), "signum|momentum=0.9 wd_lh=0.5"),
    ],
)
def test_optimizers_are_a_name_and_numbers(optimizer: mx.optimizer.Optimizer, text: str) -> None:
    name, own = text.split("|")
    said = for_servers(optimizer)
    assert said.native
    words: Dict[str, str] = dict(w.split("=") for w in said.text.split()[1:])
    assert said.text.split()[0] == name
    common = {
        "learning_rate": repr(float(optimizer.lr)),
        "wd": "0.0",
        "rescale_grad": "1.0",
    }
    assert words == {**common, **dict(w.split("=") for w in own.split())}


def test_other_optimizers_travel_pickled_without_their_scheduler(
    store: AsyncStore, worker: Worker
) -> None:
    scheduler = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5)
    lamb = mx.optimizer.LAMB(learning_rate=0.25, beta1=0.5, lr_scheduler=scheduler)
    store.set_optimizer(lamb)
    assert worker.texts == ["hosted mxnet.optimizer.optimizer.LAMB"]
    loaded = pickles.load(worker.pickles[0])
    assert isinstance(loaded, mx.optimizer.LAMB)
    assert (loaded.lr, loaded.lr_scheduler, loaded.beta1) == (0.25, None, 0.5)
    assert lamb.lr_scheduler is scheduler


def test_a_class_that_derives_from_a_native_one_is_not_native() -> None:
    said = for_servers(Mine())
    assert not said.native
    assert said.text == f"hosted {__name__}.Mine"


def test_a_rate_of_the_optimizers_own_is_left_to_the_server(
    store: AsyncStore, plugin: Plugin
) -> None:
    store.set_optimizer(Mine(learning_rate=0.5))
    store.init(7, full(1))
    store.push(7, full(1), 0)
    assert plugin.updates[0][3] == (0.5, 0.0, 1.0)


def test_an_optimizer_that_cannot_reach_the_servers_is_refused(
    store: AsyncStore, worker: Worker
) -> None:
    local = Mine()
    local.function = lambda: None
    with pytest.raises(MXNetError, match="Mine cannot be pickled for the servers"):
        store.set_optimizer(local)
    of_script = type("OfScript", (mx.optimizer.SGD,), {"__module__": "__main__"})
    with pytest.raises(MXNetError, match="__main__.OfScript") as raised:
        store.set_optimizer(of_script())
    assert str(raised.value) == snapshot(
        "dist_async: the servers cannot import __main__.OfScript: put the class into a module "
        "that they can import too, and name the module in BYTESCHEDULER_TRUSTED_MODULES on the "
        "servers; or use dist_sync, which runs any optimizer on the workers"
    )
    assert worker.texts == []


class Mine(mx.optimizer.SGD):  # type: ignore[misc]
    """May do anything."""

    def _get_lrs(self, indices: "List[object]") -> "List[float]":
        return [2 * lr for lr in super()._get_lrs(indices)]
