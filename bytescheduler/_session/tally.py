"""A short vector beside the gradients: which of them there are, and what each worker believes."""

import ctypes
from typing import Any, List, Optional

from bytescheduler._native import Pending
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import RoundCall
from bytescheduler.errors import UsageError

__all__ = ["CROSSES", "DISCARDS", "SUMS", "Tally"]

# The ends of a round, as each worker sees it.
CROSSES = 0
SUMS = 1
DISCARDS = 2
_ENDS = ("step()", "synchronize() before step()", "zero_grad() without step()")
# Before the counts stand a number, a flag for each end, and whether a worker asks for more.
_HEAD = 2 + len(_ENDS)
# Behind the counts stand the two halves of a digest, whose sums fit an int32.
_TAIL = 2
_HALF_BITS = 16
# Before all gradients, as what waits for it waits for all of them.
_PRIORITY = 2**31 - 1
_INT32 = 4  # the engine's code of the dtype


class Tally:
    """Counts for each parameter the workers that have a gradient, once a round.

    It also compares what the workers do: where one ends another number of rounds, or ends a round
    in another way, the sums that follow would belong to different steps.

    Parameters
    ----------
    session : RoundSession
        Carries it.
    key : int
        Of its own, not declared yet.
    count : int
        The number of parameters.
    """

    def __init__(self, session: RoundSession, key: int, count: int) -> None:
        self._session = session
        self._key = key
        vector = ctypes.c_int32 * (_HEAD + count + _TAIL)
        self._send, self._recv = vector(), vector()
        self._size = ctypes.sizeof(vector)
        item = (key, _INT32, ctypes.addressof(self._recv), self._size)
        session.declare([item], owner=self._recv)
        self._pending: Optional[Pending] = None
        self._rounds = 0
        self._end = CROSSES
        self._present: List[bool] = []  # in the latest round
        self._counts: List[int] = []
        self.differs = False  # a round has shown another digest on another worker
        self.is_asked = False  # in a round a worker has asked for a comparison

    @property
    def pending(self) -> Optional[Pending]:
        """The round under way, or None."""
        return self._pending

    def start(self, end: int, present: List[bool], digest: int = 0, *, asks: bool = False) -> None:
        """Tell the others which gradients are here, and how this round ends.

        REQUIRES: `settle` came after the latest `start`.

        Parameters
        ----------
        end : int
            CROSSES, SUMS or DISCARDS.
        present : list of bool
            For each parameter, whether it has a gradient.
        digest : int
            32 bits, the same on all workers unless `differs` is to become true.
        asks : bool
            Whether `is_asked` is to become true on every worker.
        """
        self._rounds += 1
        self._end = end
        head = [self._rounds, *(int(end == kind) for kind in range(len(_ENDS))), int(asks)]
        tail = [digest >> _HALF_BITS, digest & ((1 << _HALF_BITS) - 1)]
        vector: Any = self._send
        vector[:_HEAD], vector[-_TAIL:] = head, tail
        if present != self._present:  # it seldom changes
            vector[_HEAD:-_TAIL] = self._present = present
        self._pending = self._session.start_round(
            self._key,
            ctypes.addressof(self._send),
            ctypes.addressof(self._recv),
            self._size,
            RoundCall(_PRIORITY),
            owner=(self._send, self._recv),
        )

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
        got: List[int] = self._recv[:]
        self._counts = got[_HEAD:-_TAIL]
        workers = self._session.num_workers
        if got[-_TAIL:] != [workers * half for half in self._send[-_TAIL:]]:
            self.differs = True
        self.is_asked |= got[_HEAD - 1] > 0
        if got[0] != workers * self._rounds:
            self._fail(
                f"this worker is in round {self._rounds} of its optimizer, others are in another "
                "one: call step() equally often on every worker"
            )
        if got[1 + self._end] != workers:
            peer_end = next(at for at, n in enumerate(got[1 : _HEAD - 1]) if n and at != self._end)
            self._fail(
                f"round {self._rounds} ends here by {_ENDS[self._end]}, on another worker by "
                f"{_ENDS[peer_end]}: call the same methods of the optimizer on every worker"
            )

    def is_used(self, index: int) -> bool:
        """Return whether any worker had a gradient of this parameter.  Blocks."""
        self.settle()
        return self._counts[index] > 0

    def _fail(self, reason: str) -> None:
        self._session.give_up(reason)
        raise UsageError(reason, 5)
