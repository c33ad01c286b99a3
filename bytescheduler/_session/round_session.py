"""A session of a framework without an engine: rounds by address, and the engine's own errors."""

import contextlib
import threading
from typing import Counter, Iterator, NoReturn, Optional, Sequence, Tuple

from bytescheduler._native import Completions, Pending, Worker
from bytescheduler._session.direct import by_workers
from bytescheduler._session.rounds import Exchange, Round, RoundCall, Rounds, Source, WithoutEngine
from bytescheduler._session.session import Session, clamped
from bytescheduler._settings import Settings
from bytescheduler._started.consequences import as_raised
from bytescheduler.errors import Closed, Error, UsageError

__all__ = ["RoundSession"]

_LEFT = "shutdown() has closed the worker of this optimizer or module: after init() make it again"
# Key, address and bytes of memory.
Memory = Tuple[int, int, int]


class RoundSession(Session):
    """A `Session` that starts rounds and waits for them; its errors keep the engine's classes.

    Parameters
    ----------
    worker : Worker
        Owned from now on.
    """

    def __init__(self, worker: Worker) -> None:
        self._rounds = Rounds()
        self._counting = threading.Lock()
        self._counts: Counter[Optional[str]] = Counter()
        # NCCL sums tensors of floats on their devices, and the settings that say so.
        self.nccl_by = Settings.read().nccl_by
        self.sums_on_devices = bool(self.nccl_by[0])
        super().__init__(worker, self._rounds, WithoutEngine())

    @property
    def failure(self) -> Optional[Error]:
        """The error that the job failed with, or None."""
        return self._worker.status()

    def count(self, source: Source) -> None:
        """Let the end of the job wait for the rounds of `source`, as long as it lives."""
        self._rounds.add(source)

    def broadcast_from(self, root: int, memory: Sequence[Memory], *, owner: object) -> None:
        """Overwrite memory with that of worker `root`; its keys have no sums.  Blocks.

        `owner` keeps the memory alive.
        """
        with self.translated():
            self._worker.broadcast_from(root, memory, owner=owner)

    def start_round(
        self, key: int, send: int, recv: int, size: int, call: RoundCall, *, owner: object
    ) -> Pending:
        """Begin the next round of `key`, from the address `send` to the address `recv`.

        `owner` keeps both pieces of `size` bytes alive; they are apart.
        """
        try:
            return self._worker.start_push_pull(
                key,
                send,
                recv,
                size,
                owner=owner,
                priority=clamped(call.priority),
                called=call.called,
                at_once=call.at_once,
                factor=1.0 / self._worker.num_workers if call.average else 1.0,
                coding=call.coding,
                rates=call.rates,
                deferred=call.deferred,
            )
        except Error as error:
            self._raise(error)

    def new_completions(self) -> Completions:
        """Return the ends of exchanges, for one thread that waits for them."""
        return Completions()

    def start_exchange(
        self,
        exchange: Exchange,
        *,
        owner: object,
        timeout_s: float,
        completions: Optional[Completions],
        token: int,
        priority: int,
    ) -> Pending:
        """Begin an exchange, whose memory `owner` keeps alive; returns at once.

        Its errors are in the engine's words; see `error_of`.
        """
        self._check_not_forked()
        return self._worker.start_exchange(
            **exchange._asdict(),
            owner=owner,
            timeout_s=timeout_s,
            completions=completions,
            token=token,
            priority=priority,
        )

    def count_of(self, name: Optional[str]) -> int:
        """Return how often this was asked for a name, with this call.  Any thread."""
        with self._counting:
            self._counts[name] += 1
            return self._counts[name]

    def reprioritise_exchange(self, key: int, priority: int) -> None:
        """Give an exchange another priority; nothing happens if it is over."""
        self._worker.reprioritise_exchange(key, priority)

    def quit_exchange(self, key: int, reason: str) -> None:
        """End an exchange on all its workers; nothing happens if it is over."""
        self._worker.quit_exchange(key, reason)

    def error_of(self, error: Error) -> Error:
        """Return an error of an exchange with the users' names."""
        self._note_failure()
        return self._named(error)

    def wait(self, pending: Round) -> None:
        """Block until a round is over; raise what it failed with, with the users' names.

        Raises
        ------
        UsageError
            This is a forked process, in which no round ends.
        """
        self._check_not_forked()
        try:
            pending.wait()
        except Error as error:
            self._raise(error)

    def _check_not_forked(self) -> None:
        if self._forked:
            raise UsageError(
                "this process was forked from a worker, whose job it has no part in: call "
                "optimizer.synchronize() before the fork, and train in the worker",
                5,
            )

    def give_up(self, reason: str) -> None:
        """Fail the job on every worker; the caller raises an error here."""
        self._reported = True
        self._worker.fail(reason)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Give errors the users' names; unlike its base it keeps their classes."""
        try:
            yield
        except Error as error:
            raise self._named(error) from error

    def _named(self, error: Error) -> Error:
        if self._closed and isinstance(error, Closed):
            return Closed(_LEFT, error.code)
        error = as_raised(error)
        named = type(error)(self._names.in_text(str(error)), error.code)
        return by_workers(named) if self.hosts_server else named

    def _note_failure(self) -> None:
        """Note that a call raises; `close` need not, if it is the job that has failed."""
        self._reported = self._reported or self._worker.status() is not None

    def _raise(self, failure: Error) -> NoReturn:
        self._note_failure()
        raise self._named(failure) from failure
