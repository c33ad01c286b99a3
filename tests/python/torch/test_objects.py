"""Objects of one worker reach another one, whatever PyTorch's default device is."""

from typing import Any, List, Sequence, Tuple

import torch
from fake_job import FakeSession

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
