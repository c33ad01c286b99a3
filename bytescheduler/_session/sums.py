"""Sums of numbers under way, and the functions that judge them."""

import contextlib
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional, Protocol

from bytescheduler.errors import Error

__all__ = ["Judge", "Numbers", "Sum", "WatchedSums"]

# A numpy array of float64, which the workers add up outside the framework's engine.
Numbers = Any
_SLICE_S = 0.2  # signals are looked at in between
# Returns from a sum the reason why the job must fail, or None.
Judge = Callable[[Numbers], Optional[str]]


class Sum(Protocol):
    """A sum under way."""

    def over(self) -> bool:
        """Return whether it is surely over; never blocks."""

    def wait(self) -> None:
        """Return when it is over, or raise `Error`."""

    def wait_for(self, timeout_ms: int) -> bool:
        """Do as `wait`, where possible for up to `timeout_ms`; return whether it is over."""


class _Watched(NamedTuple):
    sum: Sum
    total: Numbers
    judge: Judge


class WatchedSums:
    """Sums that are judged in their order, each once, by the thread that looks first.

    Parameters
    ----------
    fail : callable
        Fails the job, for the reason that a judge gives.
    """

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._watched: List[_Watched] = []
        self._looking = threading.Lock()  # its holder takes from what is watched

    def __len__(self) -> int:
        """Return how many sums are not judged yet."""
        return len(self._watched)

    def add(self, pending: Sum, total: Numbers, judge: Judge) -> None:
        """Let `judge` have `total` once the sum is over."""
        self._watched.append(_Watched(pending, total, judge))

    def look(self, *, wait: bool) -> None:
        """Judge the sums that are over; with `wait`, all.  From any thread."""
        if not self._looking.acquire(blocking=wait):
            return  # another thread does
        try:
            with contextlib.suppress(Error):  # a failed worker has its own message
                while self._watched and (wait or self._watched[0].sum.over()):
                    watched = self._watched.pop(0)
                    watched.sum.wait()
                    fault = watched.judge(watched.total)
                    if fault is not None:
                        self._fail(fault)
        finally:
            self._looking.release()

    def wait_for(self, timeout_s: float) -> bool:
        """Judge all sums; return False if one of them is not over within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.look(wait=False)
            first = next(iter(self._watched), None)
            if first is None:
                self.look(wait=True)  # another thread may still judge
                return True
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            try:
                first.sum.wait_for(int(1000 * min(left_s, _SLICE_S)) + 1)
            except Error:  # a failed worker has its own message
                return True
