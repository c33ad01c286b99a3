"""The names of BytePS's scripts, on a worker alone, and their errors."""

import pickle
from typing import Any, Dict, Iterator

import mxnet as mx
import numpy as np
import pytest

import bytescheduler.mxnet as bps
from bytescheduler.errors import UsageError
from bytescheduler.mxnet._byteps import _JOB
from bytescheduler.mxnet._stores.native_store import NativeStore


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("DMLC_ROLE", raising=False)
    bps.init()
    bps.init()
    yield bps
    bps.shutdown()
    bps.shutdown()


def test_before_init_each_name_says_so() -> None:
    for call in (bps.rank, bps.size, bps.local_rank, bps.local_size):
        with pytest.raises(UsageError, match=r"call init\(\) of bytescheduler.mxnet first"):
            call()


def test_a_worker_alone_is_the_whole_job(alone: Any) -> None:  # noqa: ANN401 - a module
    assert (alone.rank(), alone.size(), alone.local_rank(), alone.local_size()) == (0, 1, 0, 1)
    tensor = mx.nd.full((2,), 3)
    alone.byteps_declare_tensor("a")
    alone.byteps_push_pull(tensor, version=1, priority=2, name="a", is_average=True)
    alone.broadcast_parameters({"b": tensor}, root_rank=0)
    assert (tensor.asnumpy() == 3).all()
    net = mx.gluon.nn.Dense(2)  # its shape comes with the first input
    net.initialize(mx.init.One())
    alone.broadcast_parameters(net.collect_params())
    assert (net(mx.nd.ones((1, 4))).asnumpy() == 4).all()


def test_wrong_arguments_are_refused(alone: Any) -> None:  # noqa: ANN401 - a module
    tensor = mx.nd.ones((2,))
    alone.byteps_push_pull(tensor, name="a")
    for call, text in (
        (lambda: alone.byteps_push_pull(tensor), "want a name, the same on all workers"),
        (lambda: alone.byteps_push_pull(mx.nd.ones((3,)), name="a"), "tensor 'a' has shape"),
        (lambda: alone.byteps_declare_tensor(3), "want a name, got 3"),
        (lambda: alone.broadcast_parameters({"b": tensor}, 1), "root_rank 1: want a rank below 1"),
        (lambda: alone.broadcast_parameters([tensor]), "want net.collect_params"),
        (alone.suspend, "a job keeps its workers"),
        (lambda: alone.resume(2, 2), "no job was suspended"),
    ):
        with pytest.raises(UsageError, match=text):
            call()
    with pytest.raises(TypeError, match="want an mx.optimizer.Optimizer, got 'sgd'"):
        alone.DistributedOptimizer("sgd")


def test_a_wrapped_optimizer_is_the_optimizer(alone: Any) -> None:  # noqa: ANN401 - a module
    plain = mx.optimizer.SGD(learning_rate=1, wd=0.0)
    optimizer = alone.DistributedOptimizer(plain)
    optimizer.rescale_grad = 0.5
    optimizer.set_learning_rate(2)
    assert (plain.rescale_grad, plain.lr, optimizer.learning_rate) == (0.5, 2, 2)
    weight = mx.nd.zeros((2,))
    mx.optimizer.get_updater(optimizer)(0, mx.nd.ones((2,)), weight)
    assert (weight.asnumpy() == -1).all()


def trained(trainer_of: Any) -> np.ndarray:  # noqa: ANN401 - MXNet has no types
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    trainer = trainer_of(net.collect_params())
    for step in range(4):
        with mx.autograd.record():
            loss = (net(mx.nd.full((2, 3), step + 1)) ** 2).sum()
        loss.backward()
        trainer.step(2)
    return net.weight.data().asnumpy()


@pytest.mark.parametrize(
    "params",
    [
        {"momentum": "nesterov"},
        {"momentum": "nesterov", "mu": 0.5},
        {"momentum": "nesterov", "compressor": "onebit", "scaling": True, "ef": "vanilla"},
        {"momentum": "nesterov", "compressor": "topk", "k": 0.5},
        {"momentum": "nesterov", "compressor": "randomk", "k": 0.5, "ef": "sparse"},
        {"momentum": "nesterov", "compressor": "dithering", "k": 7},
        {"momentum": "nesterov", "compressor": "int8", "mu": 0.5},
        {"momentum": "nesterov", "fp16": True},
    ],
)
def test_alone_the_optimizer_has_the_momentum(alone: Any, params: Dict[str, object]) -> None:  # noqa: ANN401
    rates = {"learning_rate": 0.01, "momentum": 0.5 if "mu" not in params else 0.0, "wd": 0.1}
    given = dict(rates)
    ours = trained(
        lambda net: alone.DistributedTrainer(net, "sgd", rates, compression_params=params)
    )
    assert rates == given
    nag = {**rates, "momentum": 0.5}
    np.testing.assert_array_equal(ours, trained(lambda net: mx.gluon.Trainer(net, "nag", nag)))


@pytest.mark.parametrize("kind", [mx.optimizer.SGD, mx.optimizer.NAG])
def test_alone_an_optimizer_that_is_made_has_it_too(alone: Any, kind: Any) -> None:  # noqa: ANN401
    rates = {"learning_rate": 0.01, "momentum": 0.5, "wd": 0.1}
    optimizer = kind(**rates)
    params = {"momentum": "nesterov", "mu": 0.25}
    ours = trained(lambda net: alone.DistributedTrainer(net, optimizer, compression_params=params))
    assert optimizer.momentum == 0.5
    nag = {**rates, "momentum": 0.25}
    np.testing.assert_array_equal(ours, trained(lambda net: mx.gluon.Trainer(net, "nag", nag)))


def test_a_name_may_be_tried_again_where_its_first_sum_failed(
    alone: Any,  # noqa: ANN401 - a module
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensor = mx.nd.ones((2,))
    with monkeypatch.context() as patch:
        patch.setattr(type(_JOB.store), "init", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            alone.byteps_push_pull(tensor, name="late")
    alone.byteps_push_pull(tensor, name="late")
    assert (tensor.asnumpy() == 1).all()


def test_a_broadcast_goes_through_the_parameter(
    alone: Any,  # noqa: ANN401 - a module
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a trainer that updates it on a store can refuse."""
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    values = []
    monkeypatch.setattr(net.weight, "set_data", values.append)
    alone.broadcast_parameters(net.collect_params())
    np.testing.assert_array_equal(values[0].asnumpy(), net.weight.data().asnumpy())


def test_a_wrapped_optimizer_is_pickled_with_its_numbers(alone: Any) -> None:  # noqa: ANN401
    optimizer = alone.DistributedOptimizer(mx.optimizer.SGD(learning_rate=3))
    copied = pickle.loads(pickle.dumps(optimizer))
    assert (type(copied), copied.lr) == (alone.DistributedOptimizer, 3)


def test_a_store_refuses_a_wrapped_optimizer(alone: Any, store: NativeStore) -> None:  # noqa: ANN401
    optimizer = alone.DistributedOptimizer(mx.optimizer.SGD())
    with pytest.raises(mx.base.MXNetError, match="DistributedOptimizer takes means .*, and so"):
        store.set_optimizer(optimizer)


def test_alone_a_wrong_dictionary_is_refused_too(alone: Any) -> None:  # noqa: ANN401
    params = mx.gluon.nn.Dense(2, in_units=3).collect_params()
    for wrong, text in (
        ({"compressor": "zip"}, "'zip': want"),
        ({"momentum": "nesterov"}, "'sgd' and 'nag', not with Adam"),
    ):
        with pytest.raises(mx.base.MXNetError, match=text):
            alone.DistributedTrainer(params, "adam", compression_params=wrong)
