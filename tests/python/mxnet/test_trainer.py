"""ScheduledTrainer in one process: which store it takes, when it starts, what it changes."""

from typing import Callable, Optional

import mxnet as mx
import numpy as np
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, TwoBitStore, full
from inline_snapshot import snapshot
from mxnet.gluon.parameter import DeferredInitializationError
from mxnet.kvstore import KVStoreBase

from bytescheduler.mxnet import ScheduledKVS, ScheduledTrainer
from bytescheduler.mxnet._sessions.stock_session import StockSession
from bytescheduler.mxnet._stores.native_store import NativeStore


@KVStoreBase.register
class EchoStore(KVStoreBase):
    """A plug-in as others write them: it cannot update, and sums over devices only."""

    type = "echostore"
    rank = 0
    num_workers = 1
    calls = 0

    def broadcast(self, key: object, value: object, out: object, priority: int = 0) -> None:
        pass  # there is nobody else

    def pushpull(self, key: object, value: object, out: object = None, priority: int = 0) -> None:
        EchoStore.calls += 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False

    def set_optimizer(self, optimizer: object) -> None:
        raise NotImplementedError

    save_optimizer_states = load_optimizer_states = set_optimizer


def dense_net() -> mx.gluon.nn.Dense:
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    return net


def step(net: mx.gluon.nn.Dense, trainer: mx.gluon.Trainer, batch_size: int = 2) -> None:
    with mx.autograd.record():
        loss = net(full(1)).sum()
    loss.backward()
    trainer.step(batch_size)


@pytest.mark.parametrize(
    "make",
    [
        lambda: "bytescheduler",
        lambda: "local",
        lambda: "device",
        lambda: mx.kv.create("local"),
        lambda: ScheduledKVS(mx.kv.create("device")),
    ],
)
@pytest.mark.parametrize("update_on_kvstore", [True, False, None])
def test_it_trains_as_gluons_own(
    make: "Callable[[], object]", update_on_kvstore: "Optional[bool]"
) -> None:
    results = []
    for kind in (mx.gluon.Trainer, ScheduledTrainer):
        net = dense_net()
        store = mx.kv.create("local") if kind is mx.gluon.Trainer else make()
        options = {"learning_rate": 0.5, "momentum": 0.5}
        trainer = kind(
            net.collect_params(),
            "sgd",
            options,
            kvstore=store,
            update_on_kvstore=update_on_kvstore,
        )
        for _ in range(3):
            step(net, trainer)
        trainer.set_learning_rate(0.25)
        step(net, trainer)
        results.append(net.weight.data().asnumpy())
    np.testing.assert_array_equal(*results)
    assert isinstance(trainer.kvstore, ScheduledKVS)
    assert trainer._kvstore is trainer.kvstore


def test_a_scheduled_store_is_used_as_it_is_and_a_wrong_one_refused() -> None:
    store = mx.kv.create("bytescheduler")
    assert ScheduledTrainer(dense_net().collect_params(), "sgd", kvstore=store).kvstore is store
    with pytest.raises(TypeError, match="want a store"):
        ScheduledTrainer(dense_net().collect_params(), "sgd", kvstore=3)


def test_it_starts_when_it_is_made_or_else_with_the_shapes() -> None:
    trainer = ScheduledTrainer(dense_net().collect_params(), "sgd")
    assert trainer._params_to_init == []
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    trainer = ScheduledTrainer(net.collect_params(), "sgd")
    assert len(trainer._params_to_init) == 2
    with pytest.raises(DeferredInitializationError):
        net.weight.data()
    step(net, trainer)
    assert trainer._params_to_init == []


def test_parameters_that_are_set_once_it_has_begun_are_refused_in_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = dense_net()
    trainer = ScheduledTrainer(net.collect_params(), "sgd", update_on_kvstore=True)
    monkeypatch.setattr(type(trainer.kvstore), "type", "dist_sync")
    with pytest.raises(RuntimeError) as raised:
        net.weight.set_data(full(2, (2, 3)))
    assert str(raised.value) == snapshot(
        "this ScheduledTrainer has copied rank 0's parameters to every worker already: load or "
        "set parameters before it is made, or use gluon.Trainer, which begins at the first step"
    )


def test_servers_that_update_learn_the_batch_size_first() -> None:
    class Dist(EchoStore):
        type = "dist_echo"

    net = dense_net()
    trainer = ScheduledTrainer(net.collect_params(), "sgd", kvstore=Dist())
    assert len(trainer._params_to_init) == 2
    step(net, trainer)
    assert trainer._params_to_init == []


def test_other_plug_ins_are_wrapped_too() -> None:
    before = EchoStore.calls
    net = dense_net()
    trainer = ScheduledTrainer(net.collect_params(), "sgd", {"learning_rate": 1}, "echostore")
    step(net, trainer, batch_size=2)
    assert trainer.kvstore.type == "echostore"
    assert EchoStore.calls == before + 2
    assert (net.weight.data().asnumpy() == 0).all()


def test_another_batch_size_takes_effect() -> None:
    net = dense_net()
    trainer = ScheduledTrainer(
        net.collect_params(), "sgd", {"learning_rate": 1}, update_on_kvstore=True
    )
    step(net, trainer, batch_size=2)
    step(net, trainer, batch_size=4)
    assert (net.weight.data().asnumpy() == 1 - 1 - 0.5).all()


def test_on_stock_servers_too_a_compressed_step_knows_its_batch_size() -> None:
    session = StockSession(FakeWorker(), FakePlugin(), TwoBitStore())  # type: ignore[arg-type]
    kvs = ScheduledKVS.__new__(ScheduledKVS)
    kvs._inner, kvs._backend = None, NativeStore(session)
    net = dense_net()
    options = {"kvstore": kvs, "compression_params": {"type": "2bit", "threshold": 1}}
    rate = {"learning_rate": 1}
    trainer = ScheduledTrainer(net.collect_params(), "sgd", rate, update_on_kvstore=True, **options)
    step(net, trainer, batch_size=2)
    step(net, trainer, batch_size=4)
    assert (net.weight.data().asnumpy() == 1 - 0.5 - 0.25).all()
    kvs.close()
