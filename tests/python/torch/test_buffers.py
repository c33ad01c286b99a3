"""Buffers of two workers: alike they become worker 0's, else an error names one."""

from typing import Any, List

import pytest
import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._ddp.buffers import Buffers


class Objects:
    """See `TensorObjects`: worker 0 sends, and is asked first; the other one receives."""

    def __init__(self, wire: List[Any], is_root: bool) -> None:
        self.wire = wire
        self.is_root = is_root
        self.messages = 0

    def overwrite(self, tensors: List[torch.Tensor], root: int) -> None:
        self.messages += 1
        if self.is_root:
            self.wire.append([tensor.clone() for tensor in tensors])
            return
        sent = self.wire.pop(0)
        assert [t.shape for t in sent] == [t.shape for t in tensors]
        for tensor, arrived in zip(tensors, sent):
            tensor.copy_(arrived)

    def broadcast(self, value: object, root: int) -> object:
        self.messages += 1
        if self.is_root:
            self.wire.append(value)
            return value
        return self.wire.pop(0)


class Session:
    """See `TorchSession`."""

    def __init__(self) -> None:
        self.reason = ""

    def give_up(self, reason: str) -> None:
        self.reason = reason


class Workers:
    """Two workers with buffers."""

    def __init__(self, *buffers: torch.Tensor) -> None:
        self.wire: List[Any] = []
        self.sessions = [Session(), Session()]
        self.named = [{f"b{n}": b.clone() for n, b in enumerate(buffers)} for _ in range(2)]
        self.objects = [Objects(self.wire, rank == 0) for rank in range(2)]
        self.buffers = [
            Buffers(self.objects[rank], self.sessions[rank], self.list(rank))  # type: ignore[arg-type]
            for rank in range(2)
        ]

    def list(self, rank: int) -> "List[Any]":
        return list(self.named[rank].items())

    def overwrite(self) -> None:
        for rank in range(2):
            self.buffers[rank].overwrite(self.list(rank))
        assert not self.wire  # the other one has taken each message, and no other

    def check(self) -> None:
        self.named[0] = {name: torch.rand_like(value) for name, value in self.list(0)}
        self.overwrite()
        assert self.named[0].keys() == self.named[1].keys()
        assert all(torch.equal(value, self.named[1][name]) for name, value in self.list(0))


def refused(workers: Workers, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        workers.overwrite()
    assert text in str(raised.value)
    assert "" in [session.reason for session in workers.sessions]
    assert str(raised.value) in [session.reason for session in workers.sessions]


def test_changed_alike_buffers_become_the_buffers_of_worker_0() -> None:
    workers = Workers(torch.zeros(3), torch.zeros(2, 2))
    for _ in range(5):
        workers.check()


def test_all_workers_may_change_them() -> None:
    workers = Workers(torch.zeros(3), torch.zeros(2, 2))
    workers.check()
    for named in workers.named:
        named["b0"] = torch.zeros(4)
        named["b2"] = torch.zeros(1, dtype=torch.float64)
    workers.check()
    before = workers.objects[0].messages
    workers.check()
    assert workers.objects[0].messages == before + 1  # they agree again


@pytest.mark.parametrize("rank", [0, 1])
def test_another_shape_on_one_worker_is_an_error_with_both(rank: int) -> None:
    workers = Workers(torch.zeros(3), torch.zeros(2, 2))
    workers.check()
    workers.named[rank]["b1"] = torch.zeros(4)  # as many bytes
    shapes = ["torch.float32 of shape (2, 2)"] * 2
    shapes[rank] = "torch.float32 of shape (4,)"
    refused(workers, f"buffer b1: it is {shapes[1]} here and {shapes[0]} on worker 0")


@pytest.mark.parametrize("rank", [0, 1])
def test_another_dtype_a_missing_one_and_another_order_are_errors(rank: int) -> None:
    workers = Workers(torch.zeros(3))
    workers.named[rank]["b0"] = torch.zeros(3, dtype=torch.int32)
    refused(workers, "torch.int32 of shape (3,)")
    workers = Workers(torch.zeros(3), torch.zeros(1))
    del workers.named[rank]["b1"]
    refused(workers, "buffer b1: it is ")
    workers = Workers(torch.zeros(3), torch.zeros(1))
    workers.named[rank] = dict(reversed(workers.list(rank)))
    refused(workers, "another order")
    workers = Workers(torch.zeros(3), torch.zeros(1))
    for each, shape in enumerate([(5,), (6,)]):  # both changed, and not alike
        workers.named[each]["b0"] = torch.zeros(shape)
    refused(workers, "it is torch.float32 of shape (6,) here and torch.float32 of shape (5,)")


def test_a_module_may_make_buffers_in_its_first_passes_only() -> None:
    workers = Workers()
    workers.check()
    for named in workers.named:
        named["late"] = torch.zeros(2)
    workers.check()
    workers = Workers()
    for _ in range(3):
        workers.overwrite()
    for rank in range(2):
        workers.named[rank]["late"] = torch.zeros(2)
        with pytest.raises(UsageError, match="buffer late: it came after 3 passes"):
            workers.buffers[rank].overwrite(workers.list(rank))
