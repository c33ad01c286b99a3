"""A short vector beside the gradients: which of them there are, and what each worker believes."""

from typing import List, Optional

import torch

from bytescheduler._native import Pending
from bytescheduler.errors import UsageError
from bytescheduler.torch._engine.session import RoundCall, TorchSession

__all__ = ["CROSSES", "DISCARDS", "SUMS", "Tally"]

# The ends of a round, as each worker sees it.
CROSSES = 0
SUMS = 1
DISCARDS = 2
_ENDS = ("step()", "synchronize() before step()", "zero_grad() without step()")
# Before the counts stand a number and a flag for each end.
_HEAD = 1 + len(_ENDS)
# Before all gradients, as what waits for it waits for all of them.
_PRIORITY = 2**31 - 1


class Tally:
    """Counts for each parameter the workers that have a gradient, once a round.

    It also compares what the workers do: where one ends another number of rounds, or ends a round
    in another way, the sums that follow would belong to different steps.

    Parameters
    ----------
    session : TorchSession
        Carries it.
    key : int
        Of its own, not declared yet.
    count : int
        The number of parameters.
    """

    def __init__(self, session: TorchSession, key: int, count: int) -> None:
        self._session = session
        self._key = key
        self._send = torch.zeros(_HEAD + count, dtype=torch.int32, device="cpu")
        self._recv = torch.zeros_like(self._send)
        session.declare_tensors([(key, self._recv)])
        self._pending: Optional[Pending] = None
        self._rounds = 0
        self._end = CROSSES
        self._counts: List[int] = []

    @property
    def pending(self) -> Optional[Pending]:
        """The round under way, or None."""
        return self._pending

    def start(self, end: int, present: List[bool]) -> None:
        """Tell the others which gradients are here, and how this round ends.

        REQUIRES: `settle` came after the latest `start`.
        """
        self._rounds += 1
        self._end = end
        head = [self._rounds] + [int(end == each) for each in range(len(_ENDS))]
        numbers = head + [int(each) for each in present]
        self._send.copy_(torch.tensor(numbers, dtype=torch.int32, device="cpu"))
        self._pending = self._session.start(self._key, self._send, self._recv, RoundCall(_PRIORITY))

    def settle(self) -> None:
        """Wait for the latest round.

        Raises
        ------
        UsageError
            The workers do not do the same.
        """
        if self._pending is None:
            return
        self._session.wait(self._pending)
        self._pending = None
        got: List[int] = self._recv.tolist()
        self._counts = got[_HEAD:]
        workers = self._session.num_workers
        if got[0] != workers * self._rounds:
            self._fail(
                f"this worker is in round {self._rounds} of its optimizer, others are in another "
                "one: call step() equally often on every worker"
            )
        if got[1 + self._end] != workers:
            other = next(at for at, n in enumerate(got[1:_HEAD]) if n and at != self._end)
            self._fail(
                f"round {self._rounds} ends here by {_ENDS[self._end]}, on another worker by "
                f"{_ENDS[other]}: call the same methods of the optimizer on every worker"
            )

    def is_used(self, index: int) -> bool:
        """Return whether any worker had a gradient of this parameter.  Blocks."""
        self.settle()
        return self._counts[index] > 0

    def _fail(self, why: str) -> None:
        self._session.give_up(why)
        raise UsageError(why, 5)
