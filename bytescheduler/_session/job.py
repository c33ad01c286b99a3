"""The job of this process, from init() to shutdown()."""

import sys
from typing import Any, Callable, Generic, Optional, Protocol, Set, TypeVar

from bytescheduler._native import fail_exit
from bytescheduler._process.say import say
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.view import View
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error

__all__ = ["Flushes", "Job", "Joined"]

_S = TypeVar("_S", bound=RoundSession)
_ALONE = View(epoch=0, rank=0, hosts=(0,), num_servers=0)


class Flushes(Protocol):
    """An object that has updates to make, at the latest when the job ends."""

    def flush(self) -> None:
        """Make them.  Blocks."""


class Joined(Generic[_S]):
    """All that a worker has in the job.

    Parameters
    ----------
    session : RoundSession, optional
        Owned from now on; None where this worker is alone.
    """

    def __init__(self, session: Optional[_S]) -> None:
        self.session = session
        self._latest = _ALONE
        # Alone nothing has to be carried; a timeline shows what is.
        records = bool(Settings.read().timeline)
        self.carrier = session if self.size > 1 or records else None
        # Kept alive, as a script may drop its optimizer after the last step.
        self.unflushed: Set[Flushes] = set()

    @property
    def view(self) -> View:
        """The job as this worker sees it now; once the session has ended, as it saw it last."""
        if self.session is not None and self.session.is_open:
            self._latest = self.session.view
        return self._latest

    @property
    def rank(self) -> int:
        """Position among the workers, from 0."""
        return self.view.rank

    @property
    def size(self) -> int:
        """How many workers the job has."""
        return self.view.num_workers

    @property
    def local_rank(self) -> int:
        """Position among the workers of this host, from 0."""
        return 0 if self.carrier is None else self.view.local_rank

    @property
    def local_size(self) -> int:
        """How many workers of the job this host has."""
        return 1 if self.carrier is None else self.view.local_size

    @property
    def cross_rank(self) -> int:
        """Position among the workers of other hosts with the same local rank, from 0."""
        return 0 if self.carrier is None else self.view.cross_rank

    @property
    def cross_size(self) -> int:
        """How many hosts have a worker of the same local rank."""
        return 1 if self.carrier is None else self.view.cross_size

    @property
    def is_homogeneous(self) -> bool:
        """True if all hosts have equally many workers."""
        return self.carrier is None or self.view.is_homogeneous


_J = TypeVar("_J", bound=Joined[Any])


class Job(Generic[_J]):
    """The one job of this process.

    Parameters
    ----------
    module : str
        The public module whose users join it; messages say it.
    join : callable
        Joins the job, and returns what this worker has there.
    """

    def __init__(self, module: str, join: Callable[[], _J]) -> None:
        self._module = module
        self._join = join
        self._joined: Optional[_J] = None
        self._left = False

    @property
    def is_joined(self) -> bool:
        """True between `join` and `leave`."""
        return self._joined is not None

    def join(self) -> None:
        """Join; a second call does nothing, and one after `leave` joins anew.  Blocks.

        Raises
        ------
        UsageError
            This process has left its job, and the launcher gives it no other.
        ConfigError, Timeout, PeerLost
            As `Worker.open`.
        """
        if self._joined is not None:
            return
        self._joined = self._join()

    def get(self) -> _J:
        """Return what this worker has in the job.

        Raises
        ------
        ValueError
            There was no `join`, or `leave` came after it.
        """
        if self._joined is None:
            cure = "shutdown() has left the job" if self._left else "call init() first"
            raise ValueError(f"{self._module} is not initialised: {cure}")
        return self._joined

    def flush(self) -> None:
        """Make all updates that wait, of all optimizers.  Blocks."""
        for session in [] if self._joined is None else list(self._joined.unflushed):
            session.flush()

    def leave(self) -> None:
        """Make pending updates, wait for rounds, and leave; a second call does nothing.  Blocks.

        While a ConfigError is handled, it waits for nothing, and the others learn that error.
        While another exception is, it waits ten seconds, and leaves updates out that wait longer.
        Then errors of the job are lines, so that they do not hide the exception.
        """
        joined = self._joined
        if joined is None:
            return
        session = joined.session
        if not isinstance(sys.exc_info()[1], ConfigError):
            if session is None or session.early_end() is None:
                self.flush()
            else:
                self._flush_early(session)
        self._joined, self._left = None, True
        if session is not None:
            session.close()

    def _flush_early(self, session: RoundSession) -> None:
        handled = sys.exc_info()[1]
        try:
            if session.is_settled():
                self.flush()
        except Error as error:
            if str(error) != str(handled):
                fail_exit()  # the script may end well, and does not see this error
                say(f"bytescheduler: {error}")
