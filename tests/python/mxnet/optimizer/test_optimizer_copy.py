"""Optimizers as text: what comes back is the same, and what could run something does not."""

import json

import mxnet as mx
import numpy as np
import pytest
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler.mxnet._optimizer.copies import optimizer_from_text, optimizer_to_text


@mx.optimizer.register
class Mine(mx.optimizer.SGD):
    """A registered class of the user's."""


class Nameless(mx.optimizer.SGD):
    """One that is not."""


def copy_of(optimizer: mx.optimizer.Optimizer) -> mx.optimizer.Optimizer:
    return optimizer_from_text(optimizer_to_text(optimizer))


def attributes(optimizer: mx.optimizer.Optimizer) -> "dict[str, object]":
    return {name: value for name, value in vars(optimizer).items() if name != "lr_scheduler"}


@pytest.mark.parametrize("name", sorted(mx.optimizer.Optimizer.opt_registry))
def test_every_registered_optimizer_comes_back_as_it_was(name: str) -> None:
    optimizer = mx.optimizer.create(name, learning_rate=0.25, wd=0.5, rescale_grad=1 / 3)
    copy = copy_of(optimizer)
    assert type(copy) is type(optimizer)
    assert attributes(copy) == attributes(optimizer)


def test_its_names_multipliers_counts_and_scheduler_come_too() -> None:
    scheduler = mx.lr_scheduler.MultiFactorScheduler(step=[2, 4], factor=0.5, base_lr=0.8)
    data = mx.sym.Variable("data", lr_mult=3.0)
    optimizer = Mine(
        momentum=np.float32(0.5),
        lr_scheduler=scheduler,
        param_idx2name={0: "fc_weight", 1: "data"},
        sym=mx.sym.FullyConnected(data, num_hidden=2, name="fc"),
        param_dict={0: mx.gluon.Parameter("weight", shape=(1,))},
    )
    optimizer.set_wd_mult({"fc_weight": 0.125})
    optimizer._update_count(1)
    copy = copy_of(optimizer)
    assert type(copy) is Mine
    assert copy.param_dict == {}
    assert copy.momentum == 0.5
    for each in (optimizer, copy):
        each.param_dict = {}
        each._set_current_context(0)
        for _ in range(3):
            each._update_count(0)
    assert attributes(copy) == attributes(optimizer)
    assert vars(copy.lr_scheduler) == vars(scheduler)
    assert [copy._get_lr(i) for i in (0, 1)] == [optimizer._get_lr(i) for i in (0, 1)]
    assert [copy._get_wd(i) for i in (0, 1)] == [optimizer._get_wd(i) for i in (0, 1)]
    assert copy._index_update_count == {0: 3, 1: 1}


def test_an_optimizer_that_text_cannot_express_is_refused_by_name() -> None:
    with pytest.raises(MXNetError, match="Nameless") as raised:
        optimizer_to_text(Nameless())
    assert str(raised.value) == snapshot(
        "Nameless cannot be handed to the other workers, as it is no class that "
        "mx.optimizer.create knows by its name: call set_optimizer on every worker"
    )
    optimizer = mx.optimizer.SGD()
    optimizer.hook = print
    with pytest.raises(MXNetError, match="SGD") as raised:
        optimizer_to_text(optimizer)
    assert str(raised.value) == snapshot(
        "SGD cannot be handed to the other workers, as it holds a builtin_function_or_method: "
        "call set_optimizer on every worker"
    )
    optimizer.hook = mx.nd.ones(3)
    with pytest.raises(MXNetError, match="NDArray") as raised:
        optimizer_to_text(optimizer)
    assert str(raised.value) == snapshot(
        "SGD cannot be handed to the other workers, as it holds a NDArray: call set_optimizer on "
        "every worker"
    )


@pytest.mark.parametrize(
    "value",
    [
        "not json",
        "[1]",
        '["nobody", ["dict", []]]',
        '["sgd", 5]',
        '["sgd", ["dict", []]]',  # not even counts
        '["sgd", ["scheduler", ["Popen", ["dict", []]]]]',
        '["sgd", ["scheduler", ["math", ["dict", []]]]]',
        '["sgd", ["set", []]]',
        '["sgd", ["dict", [[["list", []], 1]]]]',
        '["sgd", ' + "[" * 100000,
    ],
)
def test_anything_else_is_no_optimizer(value: str) -> None:
    with pytest.raises(MXNetError, match="another worker's optimizer cannot be taken over"):
        optimizer_from_text(value)


def test_text_runs_no_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    text = optimizer_to_text(Mine(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=3)))

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a constructor ran")

    monkeypatch.setattr(mx.optimizer.SGD, "__init__", fail)
    monkeypatch.setattr(mx.lr_scheduler.FactorScheduler, "__init__", fail)
    assert optimizer_from_text(text).lr_scheduler.step == 3
    assert json.loads(text)[0] == "mine"
