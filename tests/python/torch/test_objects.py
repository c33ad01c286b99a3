"""Objects of one worker reach another one, whatever PyTorch's default device is."""

import pickle
import types
from typing import Any, List, Sequence, Tuple

import pytest
import torch
from fake_job import FakeSession

from bytescheduler.errors import UsageError
from bytescheduler.torch._api import broadcast
from bytescheduler.torch._sums.objects import Objects
from bytescheduler.torch._sums.relay import Relay


class Relaying(FakeSession):
    """Keeps what worker 0 sends, and gives it to worker 1 later."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: List[torch.Tensor] = []

    def broadcast_from(self, root: int, tensors: Sequence[Tuple[int, torch.Tensor]]) -> None:
        for _, tensor in tensors:
            assert tensor.is_cpu
            if self.rank == root:
                self.kept.append(tensor.clone())
            else:
                tensor.copy_(self.kept.pop(0))


def test_a_default_device_changes_nothing() -> None:
    session: Any = Relaying()
    with torch.device("meta"):
        told = Objects(Relay(session), 0, 2).broadcast({"step": 3}, 0)
        session.rank = 1
        assert Objects(Relay(session), 1, 2).broadcast(None, 0) == told == {"step": 3}
    assert not session.kept


def test_an_object_that_pickle_refuses_is_an_error_on_every_worker() -> None:
    session: Any = Relaying()
    for value in (lambda: 0, 7):
        session.rank = 0
        relay = Relay(session)
        if value == 7:
            Objects(relay, 0, 2).broadcast(value, 0)
        else:
            with pytest.raises((pickle.PicklingError, AttributeError)):
                Objects(relay, 0, 2).broadcast(value, 0)
        session.rank = 1
        if value == 7:
            assert Objects(Relay(session), 1, 2).broadcast(None, 0) == value
        else:
            with pytest.raises(UsageError, match="worker 0 could not pickle its object"):
                Objects(Relay(session), 1, 2).broadcast(None, 0)
        assert not session.kept


def test_a_conjugate_tensor_gets_the_values_of_the_other_worker() -> None:
    session: Any = Relaying()
    numbers = torch.tensor([1 + 2j, 3 - 1j]), torch.zeros(2, dtype=torch.complex64)
    for rank, tensor in enumerate(numbers):
        session.rank = rank
        Objects(Relay(session), rank, 2).overwrite([tensor.conj(), tensor.imag], 0)
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
            job.objects = Objects(Relay(session), job.rank, 2)
            broadcast.broadcast_optimizer_state(inner, 0)
    assert mine.state[params[1]]["momentum_buffer"].tolist() == [2.0] * 3
