"""Plug-ins that have only what MXNet demands of them."""

from typing import Iterable, List, Optional

import mxnet as mx
import numpy as np
import pytest
from fakes import full, train_on_two_devices
from mxnet.base import MXNetError
from mxnet.kvstore import KVStoreBase

from bytescheduler.mxnet import ScheduledKVS


class Bare(KVStoreBase):
    """Adds up the devices of one process, and notes what it is asked."""

    type = property(lambda self: "bare")
    rank = property(lambda self: 0)
    num_workers = property(lambda self: self.workers)

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self.asked: List[object] = []

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False

    def broadcast(
        self, key: int, value: object, out: "Iterable[object]", priority: int = 0
    ) -> None:
        self.asked.append(("broadcast", key, priority))
        for each in out:
            each[:] = value  # type: ignore[index]

    def pushpull(
        self,
        key: int,
        value: "List[object]",
        out: "Optional[List[object]]" = None,
        priority: int = 0,
    ) -> None:
        self.asked.append(("pushpull", key, priority))
        total = sum(each.as_in_context(mx.cpu()) for each in value)  # type: ignore[attr-defined]
        for each in value if out is None else out:
            total.copyto(each)

    set_optimizer = save_optimizer_states = load_optimizer_states = None


def test_attributes_that_callers_read_exist_though_the_plug_in_lacks_them() -> None:
    kvs = ScheduledKVS(Bare())
    assert (kvs.type, kvs.rank, kvs.num_workers) == ("bare", 0, 1)
    assert not kvs.handle
    assert kvs._updater is None
    assert kvs._is_p3 is False
    assert kvs.is_capable("optimizer") is False
    assert type(kvs).is_capable("optimizer") is False
    assert isinstance(kvs, ScheduledKVS)
    assert str(type(kvs)) == str(ScheduledKVS)
    assert type(ScheduledKVS(mx.kv.create("local"))) is ScheduledKVS  # it cannot be asked so
    kvs.barrier()
    kvs._send_command_to_servers(0, "x")
    with pytest.raises(AttributeError, match="row_sparse_pull"):
        kvs.row_sparse_pull(1, out=full(0), row_ids=full(0))
    del kvs


def test_a_derived_class_keeps_its_own_methods() -> None:
    class Derived(ScheduledKVS):
        def is_capable(self, capability: str) -> bool:
            return True

    kvs = Derived(Bare())
    assert type(kvs) is Derived
    assert kvs.is_capable("optimizer") is True

    class Plain(ScheduledKVS):
        pass

    plain = Plain(Bare())
    assert isinstance(plain, Plain)
    assert type(plain).is_capable("optimizer") is False


def test_workers_that_cannot_be_waited_for_are_an_error() -> None:
    with pytest.raises(MXNetError, match="MXNet's bare store has no barrier"):
        ScheduledKVS(Bare(workers=2)).barrier()


def test_gluon_trains_over_such_a_plug_in() -> None:
    stores = [Bare(), ScheduledKVS(Bare())]
    results = [train_on_two_devices(kvs, 3) for kvs in stores]
    np.testing.assert_array_equal(*results)
    assert (results[0] != 1).all()
    assert stores[0].asked == stores[1]._inner.asked
    assert ("pushpull", 1, -1) in stores[0].asked
