"""Steps of a Trainer with a loss scaler: when weights change, and who decides."""

import functools
from typing import Optional

import mxnet as mx
import numpy as np
import pytest
from fakes import full
from mxnet.base import MXNetError
from mxnet.contrib.amp.loss_scaler import LossScaler
from mxnet.kvstore import KVStoreBase

from bytescheduler.mxnet import ScheduledKVS
from bytescheduler.mxnet._stores.native_store import NativeStore
from bytescheduler.mxnet._stores.scaled_steps import ScaledSteps

INF = float("inf")


def scaled_trainer(
    kvs: KVStoreBase, devices: int = 1, on_store: "Optional[bool]" = True
) -> "tuple[mx.gluon.Parameter, mx.gluon.Trainer]":
    weight = mx.gluon.Parameter("weight", shape=(2, 3))
    weight.initialize(mx.init.One(), ctx=[mx.cpu(device) for device in range(devices)])
    rate = {"learning_rate": 1.0, "momentum": 0.5}
    trainer = mx.gluon.Trainer([weight], "sgd", rate, kvstore=kvs, update_on_kvstore=on_store)
    trainer._amp_loss_scaler, trainer._amp_original_scale = LossScaler(), trainer._scale
    return weight, trainer


def step(weight: mx.gluon.Parameter, trainer: mx.gluon.Trainer, *gradients: float) -> float:
    """Return what the weight is then; gradients are one for each device."""
    scale = trainer._amp_loss_scaler.loss_scale
    trainer._scale = trainer._amp_original_scale / scale
    with mx.autograd.record():
        pairs = zip(weight.list_data(), gradients)
        losses = [(data * gradient * scale).sum() for data, gradient in pairs]
    mx.autograd.backward(losses)
    trainer.step(1)
    (value,) = np.unique([data.asnumpy() for data in weight.list_data()])
    return float(value)


@pytest.mark.parametrize("on_store", [True, False])
def test_on_a_store_of_one_process_every_device_counts(on_store: bool) -> None:
    weight, trainer = scaled_trainer(ScheduledKVS(mx.kv.create("local")), 2, on_store)
    assert step(weight, trainer, 0.5, 0.25) == 0.25
    for nothing in ((1, INF), (INF, 1), (INF, -INF), (float("nan"), 1)):
        assert step(weight, trainer, *nothing) == 0.25
    assert step(weight, trainer, 0.5, 0.25) == 0.25 - 0.75 - 0.5 * 0.75
    assert trainer._amp_loss_scaler.loss_scale == 2.0**16 / 2**4
    assert trainer._optimizer.num_update == 2


class Servers(KVStoreBase):
    """Stands for servers that update."""

    type = "dist_sync"
    rank = 0
    num_workers = 1
    set_optimizer = save_optimizer_states = load_optimizer_states = print

    def broadcast(self, key: object, value: object, out: object, priority: int = 0) -> None:
        pass

    def pushpull(self, key: object, value: object, out: object = None, priority: int = 0) -> None:
        pass

    @staticmethod
    def is_capable(capability: str) -> bool:
        return True


def test_servers_that_would_update_by_infinities_are_refused() -> None:
    weight, trainer = scaled_trainer(ScheduledKVS(Servers()))
    with pytest.raises(MXNetError, match="give the Trainer update_on_kvstore=False"):
        step(weight, trainer, 1)
    weight, trainer = scaled_trainer(ScheduledKVS(Servers()), on_store=False)
    assert step(weight, trainer, 0.25) == 0.75


def test_a_step_that_was_interrupted_ends_before_the_next(store: NativeStore) -> None:
    _, trainer = scaled_trainer(None)
    store.set_optimizer(trainer._optimizer)
    store.init([0, 1], [full(1), full(1)])
    outs = [full(-1), full(-1)]
    store.pushpull(0, full(INF), outs[0], 0)
    assert (outs[0].asnumpy() == -1).all()  # not known yet
    store.pushpull(1, full(0.5), outs[1], 0)
    store.push(0, full(0.5), 0)  # of the next step
    assert [out.asnumpy().max() for out in outs] == [1, 1]
    store.pull(0, outs[0], 0, True)
    assert not trainer._amp_loss_scaler.has_overflow([])
    assert [out.asnumpy().max() for out in outs] == [0.5, 1]
    scaler = trainer._amp_loss_scaler
    assert (scaler._loss_scale, scaler._next_loss_scale) == (2.0**15, 2.0**15)


def test_a_scaler_without_its_store_does_as_mxnets() -> None:
    steps, (weight, trainer) = ScaledSteps(), scaled_trainer(None)
    steps.hold(trainer, 0, [full(1)], lambda: None)
    del steps
    weight.grad()[:] = INF
    assert trainer._amp_loss_scaler.has_overflow([weight])
    weight.grad()[:] = 1
    assert not trainer._amp_loss_scaler.has_overflow([weight])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "row_sparse"])
def test_arrays_of_any_dtype_and_kind_are_looked_at(dtype: str) -> None:
    def array(value: float) -> mx.nd.NDArray:
        if dtype == "row_sparse":
            return full(value).tostype("row_sparse")
        return full(value).astype(dtype)

    for value, overflows in ((1, False), (INF, True), (float("nan"), True)):
        steps, (_, trainer) = ScaledSteps(), scaled_trainer(None)
        others = [full(1), full(1).astype("int32"), full(1).astype("float16")]
        done: list[str] = []
        steps.hold(trainer, 0, [*others, array(value)], functools.partial(done.append, "update"))
        steps.then(functools.partial(done.append, "copy"))
        assert trainer._amp_loss_scaler.has_overflow([]) is overflows
        assert done == (["copy"] if overflows else ["update", "copy"])
