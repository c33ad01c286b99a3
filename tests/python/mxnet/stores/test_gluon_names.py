"""What timelines call the keys of a Trainer, and how the order of forward is found."""

from typing import List, Tuple

import mxnet as mx
import pytest
from fakes import full

from bytescheduler.mxnet._stores.gluon_names import GluonNames

Shown = List[Tuple[object, str]]


class Store:
    """Stands for a store that a Trainer declares its keys to."""

    def __init__(self, *, finds_order: bool) -> None:
        self.shown: Shown = []
        self.names = GluonNames(
            lambda key, name: self.shown.append((key, name)), finds_order=finds_order
        )


class Trainer(mx.gluon.Trainer):
    """Declares its keys when it is told to."""

    def declare(self, store: Store) -> None:
        for key in range(len(self._params)):
            store.names.declare([key])


def net_of(layers: int) -> mx.gluon.nn.HybridSequential:
    net = mx.gluon.nn.HybridSequential(prefix="")
    with net.name_scope():
        for _ in range(layers):
            net.add(mx.gluon.nn.Dense(3, in_units=3, use_bias=False))
    net.initialize()
    return net


def trainer_of(net: mx.gluon.nn.HybridSequential) -> Trainer:
    return Trainer(net.collect_params(), "sgd", kvstore=None)


@pytest.mark.parametrize("hybrid", [False, True])
def test_keys_are_named_again_in_the_order_of_forward(hybrid: bool) -> None:
    net, store = net_of(12), Store(finds_order=True)
    trainer = trainer_of(net)
    if hybrid:
        net.hybridize()
    trainer.declare(store)
    first, store.shown[:] = list(store.shown), []
    assert first == [(key, param.name) for key, param in enumerate(trainer._params)]
    net[7].weight.data()  # a script that looks at a weight
    assert not store.shown
    for _ in range(2):
        with mx.autograd.record():
            net(full(1))
    assert [name for _, name in store.shown] == list(net.collect_params())
    assert set(store.shown) == set(first)
    assert all("data" not in vars(param) for param in trainer._params)


def test_without_a_recording_parameters_are_left_alone() -> None:
    net, store = net_of(2), Store(finds_order=False)
    trainer_of(net).declare(store)
    assert len(store.shown) == 2
    assert all("data" not in vars(param) for param in net.collect_params().values())


def test_other_callers_and_their_keys_have_no_names() -> None:
    store = Store(finds_order=True)
    store.names.declare([0, 1])
    store.names.declare(["fc_weight"])
    store.names.repeat([0])
    assert store.shown == []
