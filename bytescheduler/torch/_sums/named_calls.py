"""Calls under one name: a worker that sums meets workers that reduce in another way.

A sum is a round of a key, and Min, Max and Product are exchanges. A worker in the first and a
worker in the second would wait for each other. So a sum states itself, at the place where an
exchange of its name and number would be: when its name is new, and when it takes long.
"""

import contextlib
import hashlib
import time
from typing import List, Optional, Protocol

from bytescheduler._native import Pending
from bytescheduler._process.ending import text_of
from bytescheduler._session.rounds import Exchange
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["NamedCalls", "SumCall", "key_of", "sum_label", "title_of"]

_PATIENCE_S = 1.0  # a sum that takes longer states itself
_SLICE_MS = 50
_MOST_LETTERS = 60  # the part of a name that labels have
_PRIORITY = 2**31 - 1  # it has no bytes, and a worker waits for it


class _Round(Protocol):
    """A round under way, such as `Pending`."""

    def over(self) -> bool:
        """Return whether it has ended; raise its error if it failed."""

    def wait_for(self, timeout_ms: int) -> bool:
        """Block up to `timeout_ms`; return whether it has ended, raise its error if it failed."""


def key_of(name: Optional[str], number: int, place: int) -> int:
    """Return a key that follows from name and number: at the first place all calls meet."""
    text = f"reduction|{name!r}|{number}|{place}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def title_of(name: Optional[str], number: int) -> str:
    """Return the beginning of the labels of all calls that meet."""
    of = "tensors without a name" if name is None else ascii(name)[:_MOST_LETTERS]
    return f"allreduce #{number} of {of}"


def sum_label(name: Optional[str], number: int) -> str:
    """Return the label of a sum; all sums of a name and number have the same."""
    return f"{title_of(name, number)}, op=Sum or Average"


class SumCall:
    """A sum under a name, as workers that reduce in another way learn of it; a `Round`.

    Parameters
    ----------
    session : TorchSession
        Carries it.
    name : str
        Given by the script.
    number : int
        How often this name was used, with this call.
    timeout_s : float
        The comparison takes no longer.
    """

    def __init__(self, session: TorchSession, name: str, number: int, timeout_s: float) -> None:
        self._session = session
        self._name = name
        self._number = number
        self._timeout_s = timeout_s
        self._round: Optional[_Round] = None
        self._begun = time.monotonic()
        self._statement: Optional[Pending] = None
        self._is_stated = False
        self._is_late = False

    def carried_by(self, pending: _Round) -> "SumCall":
        """Return this, with the round that brings the sum."""
        self._round = pending
        return self

    def state(self) -> None:
        """Begin to compare operations with the other workers, once; never blocks."""
        if self._is_stated:
            return
        self._is_stated = True
        workers = self._session.num_workers
        everyone = tuple(range(workers))
        exchange = Exchange(
            key=key_of(self._name, self._number, 0),
            givers=everyone,
            takers=everyone,
            label=sum_label(self._name, self._number),
            home=self._number % workers,
        )
        # A job without exchanges has no other reductions; the sum raises an error of the job.
        with contextlib.suppress(Error):
            self._statement = self._session.start_exchange(
                exchange,
                owner=None,
                timeout_s=self._timeout_s,
                completions=None,
                token=0,
                priority=_PRIORITY,
            )

    def is_settled(self) -> bool:
        """Return whether the comparison has ended, if one began.

        Raises
        ------
        ConfigError
            Another worker does not sum. The job has failed: this worker's part of the sum stays on
            the servers, and would be taken for that of a later sum.
        """
        if self._statement is None:
            return True
        try:
            return self._statement.over()
        except ConfigError as error:
            self._session.give_up(text_of(error))
            raise
        except Error:  # the sum fails by itself, or has ended elsewhere
            return True

    def over(self) -> bool:
        """See `Round`."""
        assert self._round is not None
        if self._round.over():
            self._end()
            return True
        self._look()
        return False

    def wait(self) -> None:
        """See `Round`."""
        assert self._round is not None
        while not self._round.wait_for(_SLICE_MS):
            self._look()
        self._end()

    def _look(self) -> None:
        """Look at the comparison, which begins now if the sum takes long."""
        if not self._is_stated and time.monotonic() - self._begun > _PATIENCE_S:
            self._is_late = True
            self.state()
        self.is_settled()

    def _end(self) -> None:
        """End a late comparison, in which workers that were quicker have no part."""
        if self._is_late and not self.is_settled():
            with contextlib.suppress(Error):  # the job has failed
                self._session.quit_exchange(key_of(self._name, self._number, 0), "the sum came")


class NamedCalls:
    """Counts the calls of each name.

    Parameters
    ----------
    session : TorchSession
        Carries them.
    """

    def __init__(self, session: TorchSession) -> None:
        self._session = session
        self._timeout_s = Settings.read().straggler_s
        self._stated: List[SumCall] = []  # kept until their comparisons have ended

    def next_sum(self, name: str) -> SumCall:
        """Return the next call of a name, which is a sum."""
        return SumCall(self._session, name, self._session.count_of(name), self._timeout_s)

    def state(self, call: SumCall) -> None:
        """Let workers compare their operations under a new name; never blocks."""
        self._stated = [stated for stated in self._stated if not stated.is_settled()]
        call.state()
        self._stated.append(call)
