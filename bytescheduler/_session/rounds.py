"""Rounds of a framework without an engine of its own: they end by themselves."""

import contextlib
import time
import weakref
from typing import Any, List, NamedTuple, Optional, Protocol, Tuple

from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError, Error

__all__ = [
    "MAX",
    "MIN",
    "PRODUCT",
    "SUM",
    "Exchange",
    "Rates",
    "Round",
    "RoundCall",
    "Rounds",
    "Source",
    "WithoutEngine",
    "is_over",
]

_LOOK_EVERY_S = 0.005
# Operations, as the engine numbers them.
SUM, MIN, MAX, PRODUCT = range(4)


Rates = Tuple[float, float, float]  # learning rate, weight decay, rescale_grad


class Round(Protocol):
    """A round under way, such as `Pending`."""

    def over(self) -> bool:
        """Return whether it has ended; raise its error if it failed."""

    def wait(self) -> None:
        """Block until it has ended; raise its error if it failed."""


class Source(Protocol):
    """An object that starts rounds and keeps them."""

    def unfinished(self) -> List[Round]:
        """Return the rounds that may still be under way."""

    def at_end(self) -> None:
        """Report losses at the end of the job."""


class RoundCall(NamedTuple):
    """The options of a round."""

    priority: int = 0
    average: bool = False
    called: int = 0  # see `Worker.start_push_pull`
    at_once: bool = False
    coding: Optional[Coding] = None
    rates: Optional[Rates] = None  # that the rest of a coding with feedback follows
    deferred: bool = False  # see `Pending.starter`
    source: Optional[Any] = None  # on a device: the sent tensor becomes a copy of it


class Exchange(NamedTuple):
    """An exchange as one of its givers or takers starts it.

    Parameters
    ----------
    key : int
        64 bits; no other exchange of the job has it.
    givers, takers : tuple of int
        Ranks that contribute bytes, and ranks that receive the result.
    label : str
        At most 200 bytes, alike on all of them.
    home : int
        The rank that keeps the round, in a direct job.
    size : int
        Bytes; 0 if the exchange only compares labels.
    dtype, op : int
        The elements' type, and the operation on several contributions.
    send, receive : int
        Addresses; 0 if this rank gives, or takes, nothing.
    """

    key: int
    givers: Tuple[int, ...]
    takers: Tuple[int, ...]
    label: str
    home: int
    size: int = 0
    dtype: int = 0
    op: int = SUM
    send: int = 0
    receive: int = 0


class WithoutEngine:
    """See `Framework`: for a framework without an engine of its own, such as PyTorch."""

    error = Error  # users catch the engine's own
    config_error = ConfigError
    owner = "job"

    def abandon(self) -> None:
        """Do nothing: no thread of the framework waits for a round."""

    def release(self) -> None:
        """Do nothing: the framework itself has no part in the job."""

    def forget(self) -> None:
        """Do nothing: no destructor waits for a thread."""


class Rounds:
    """See `Operations`: the rounds of all sources that are alive."""

    def __init__(self) -> None:
        self._sources: weakref.WeakSet[Source] = weakref.WeakSet()

    def add(self, source: Source) -> None:
        """Count the rounds of `source` too, as long as it lives."""
        self._sources.add(source)

    def _under_way(self) -> List[Round]:
        rounds = [pending for source in list(self._sources) for pending in source.unfinished()]
        return [pending for pending in rounds if not is_over(pending)]

    def pending(self) -> int:
        """See `Operations`."""
        return len(self._under_way())

    def drain(self, timeout: Optional[float] = None) -> bool:
        """See `Operations`."""
        if timeout is None:
            for pending in self._under_way():
                _wait(pending)
            return not self._under_way()
        end = time.monotonic() + timeout
        while self._under_way():
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def close(self) -> None:
        """See `Operations`."""
        for source in list(self._sources):
            source.at_end()
        self._sources.clear()


def is_over(pending: Round) -> bool:
    """Return whether a round has ended, well or not; False if a device failed."""
    try:
        return pending.over()
    except Error:  # the worker has it too
        return True
    except RuntimeError:  # a device failed, so it never ends
        return False


def _wait(pending: Round) -> None:
    with contextlib.suppress(Exception):  # the worker has it too, or a device can do no more
        pending.wait()
