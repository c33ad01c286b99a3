"""The back end of dist_async over a fake engine: what reaches the servers, and what never does."""

from typing import Dict, List, Tuple

import mxnet as mx
import pytest
from fakes import FakePlugin, FakeWorker, full
from mxnet.base import MXNetError

from bytescheduler._native import MXNetRounds
from bytescheduler.mxnet._async_store import AsyncStore
from bytescheduler.mxnet._link import Link
from bytescheduler.mxnet._optimizer_text import optimizer_text


class Worker(FakeWorker):
    """Keeps what is declared asynchronous, and optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: List[bool] = []
        self.texts: List[str] = []

    def broadcast(
        self,
        items: "List[Tuple[int, int, int, int]]",
        owner: object = None,
        asynchronous: bool = False,
    ) -> None:
        super().broadcast(items, owner)
        self.modes.append(asynchronous)

    def set_optimizer(self, text: str) -> None:
        self.texts.append(text)


class Plugin(FakePlugin):
    """Keeps updates: key, whether it pushes and pulls, and its rates."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: List[Tuple[int, bool, bool, object]] = []

    def update(
        self, rounds: MXNetRounds, priority: int, *, pushes: bool, pulls: bool, rates: object
    ) -> None:
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
def store(link: Link) -> AsyncStore:
    return AsyncStore(link)


def test_keys_are_declared_asynchronous(store: AsyncStore, worker: Worker) -> None:
    store.init(7, full(1))
    assert worker.modes == [True]
    with pytest.raises(MXNetError, match="key 8: dist_async cannot update int32, only float32"):
        store.init([9, 8], [full(1), full(1).astype("int32")])
    assert len(worker.modes) == 1


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


def test_rates_are_those_of_the_moment(store: AsyncStore, worker: Worker, plugin: Plugin) -> None:
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


def test_sparse_arrays_and_compression_are_refused_before_anything_is_sent(
    store: AsyncStore, plugin: Plugin
) -> None:
    store.init(1, full(0))
    rows = full(1).tostype("row_sparse")
    for call in (
        lambda: store.init(2, rows),
        lambda: store.push(1, rows, 0),
        lambda: store.pushpull(1, rows, None, 0),
        lambda: store.pull(1, rows, 0, False),
        lambda: store.row_sparse_pull(1, rows, 0, full(0)),
    ):
        with pytest.raises(MXNetError, match="key [12]: dist_async takes no row_sparse arrays"):
            call()
    with pytest.raises(MXNetError, match="dist_async cannot compress gradients"):
        store.set_gradient_compression({"type": "2bit"})
    assert plugin.updates == []


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
    words: Dict[str, str] = dict(w.split("=") for w in optimizer_text(optimizer).split()[1:])
    assert optimizer_text(optimizer).split()[0] == name
    common = {
        "learning_rate": repr(float(optimizer.lr)),
        "wd": "0.0",
        "rescale_grad": "1.0",
    }
    assert words == {**common, **dict(w.split("=") for w in own.split())}


def test_what_servers_cannot_run_is_refused_with_what_they_can(
    store: AsyncStore, worker: Worker
) -> None:
    class Mine(mx.optimizer.SGD):  # type: ignore[misc]
        """May do anything."""

    for optimizer in (mx.optimizer.LAMB(), Mine()):
        with pytest.raises(MXNetError, match="only SGD, NAG, Adam, AdaGrad, RMSProp, Ftrl, Signum"):
            store.set_optimizer(optimizer)
    assert worker.texts == []
