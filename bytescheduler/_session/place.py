"""A place in a job, which a process takes once whatever number of sessions it makes."""

import weakref
from typing import Callable, Generic, Optional, Set, TypeVar

from bytescheduler._native import Worker
from bytescheduler._session.framework import Framework
from bytescheduler._session.session import Session

__all__ = ["Place"]

_S = TypeVar("_S", bound=Session)


class Place(Generic[_S]):
    """Holds the session of this process without keeping it alive.

    A place is empty before the first session, after the last owner has closed it, and in a forked
    child.
    """

    def __init__(self) -> None:
        self._session: Optional[weakref.ref[_S]] = None
        self._left: Set[str] = set()

    def session(self) -> Optional[_S]:
        """Return the session that holds this place, or None."""
        session = None if self._session is None else self._session()
        return session if session is not None and session.is_open else None

    def shared(self) -> Optional[_S]:
        """Return the session that holds this place, with one more owner; None: it is empty."""
        session = self.session()
        if session is not None:
            session.share()
        return session

    def has_left(self, job: str) -> bool:
        """Return whether the last owner in that job, as `join` calls it, has closed it."""
        return job in self._left

    def take(self, session: _S) -> None:
        """Let `session` hold this place."""
        self._session = weakref.ref(session)

    def join(
        self,
        make: Callable[[Worker], _S],
        framework: Framework,
        *,
        job: str = "",
        wanted_rank: int = -1,
        open_worker: Optional[Callable[[], Worker]] = None,
    ) -> _S:
        """Join the job, or share the session that this process has in it.  Blocks.

        Parameters
        ----------
        make : callable
            Makes a session of a worker, which it then owns.
        framework : Framework
            Its errors are raised.
        job : str
            The address of the scheduler node; empty if the process may join again.
        wanted_rank : int
            The rank to take; -1 takes the rank that the scheduler node gives.
        open_worker : callable, optional
            Opens the worker in another way, such as `direct.open_worker`.

        Raises
        ------
        framework.error
            This process has left the job.
        Error
            As `Worker.open`.
        """
        shared = self.shared()
        if shared is not None:
            return shared
        if job in self._left:
            raise framework.error(
                f"this process has left the job of {job}: its last {framework.owner} was closed, "
                f"by close() or at the end of a with block; make the next {framework.owner} before "
                "that"
            )
        worker = open_worker() if open_worker else Worker.open(wanted_rank=wanted_rank)
        try:
            session = make(worker)
        except BaseException:
            worker.close(drain_ms=0)
            raise
        if job:
            session.on_leaving(lambda: self._left.add(job))
        session.show_metrics()
        self.take(session)
        return session
