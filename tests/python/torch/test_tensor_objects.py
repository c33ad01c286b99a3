"""Tensors of one worker reach another one, whatever PyTorch's default device is."""

import ctypes
import types
from typing import Any, List, Sequence, Tuple

import pytest
import torch
from fake_job import FakeSession

from bytescheduler._session.relay import Relay
from bytescheduler._session.view import View
from bytescheduler.torch._api import broadcast
from bytescheduler.torch._sums.objects import TensorObjects


class Relaying(FakeSession):
    """Keeps what worker 0 sends, and gives it to worker 1 later."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: List[bytes] = []

    def broadcast_from(
        self, root: int, memory: Sequence[Tuple[int, int, int]], *, owner: object
    ) -> None:
        for _, address, size in memory:
            if self.rank == root:
                self.kept.append(ctypes.string_at(address, size))
            else:
                ctypes.memmove(address, self.kept.pop(0), size)


class OfTwo:
    """The job of two workers, as worker `rank` sees it."""

    def __init__(self, rank: int) -> None:
        self.view = View(epoch=0, rank=rank, hosts=(0, 0), num_servers=1)


def test_a_default_device_changes_nothing() -> None:
    session: Any = Relaying()
    numbers = torch.arange(4.0), torch.zeros(4)
    with torch.device("meta"):
        for session.rank, tensor in enumerate(numbers):
            TensorObjects(Relay(session), OfTwo(session.rank)).overwrite([tensor], 0)
    assert numbers[1].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not session.kept


def test_a_conjugate_tensor_gets_the_values_of_the_other_worker() -> None:
    session: Any = Relaying()
    numbers = torch.tensor([1 + 2j, 3 - 1j]), torch.zeros(2, dtype=torch.complex64)
    for rank, tensor in enumerate(numbers):
        session.rank = rank
        TensorObjects(Relay(session), OfTwo(rank)).overwrite([tensor.conj(), tensor.imag], 0)
    assert torch.equal(numbers[0], numbers[1])


def test_nor_does_one_change_the_state_of_an_optimizer_that_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session: Any = Relaying()
    job = types.SimpleNamespace(rank=0, size=2)
    monkeypatch.setattr(broadcast, "current", lambda: types.SimpleNamespace(get=lambda: job))
    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    theirs, mine = (torch.optim.SGD([param], 0.5, momentum=0.9) for param in params)
    params[0].grad = torch.full((3,), 2.0)
    theirs.step()
    with torch.device("meta"):
        for job.rank, inner in enumerate((theirs, mine)):
            session.rank = job.rank
            job.objects = TensorObjects(Relay(session), OfTwo(job.rank))
            broadcast.broadcast_optimizer_state(inner, 0)
    assert mine.state[params[1]]["momentum_buffer"].tolist() == [2.0] * 3
