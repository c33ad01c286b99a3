"""The functions that every framework's module has: join the job, ask about it, leave it."""

from typing import Any, Generic, TypeVar

from bytescheduler._session.job import Job, Joined

__all__ = ["Basics"]

_J = TypeVar("_J", bound=Joined[Any])


class Basics(Generic[_J]):
    """Gives a module its functions.

    Parameters
    ----------
    job : Job
        The job of this process.
    """

    def __init__(self, job: Job[_J]) -> None:
        self._job = job

    def init(self, lazy: bool = False) -> None:
        """Join the job; a second call does nothing.  Blocks until every worker and server is there.

        Parameters
        ----------
        lazy : bool
            Accepted for scripts of BytePS; tensors are always declared with their first use.

        Raises
        ------
        ConfigError
            A setting is wrong.
        Timeout, PeerLost
            Not all came in time, or one was lost meanwhile.
        """
        self._job.join()

    def shutdown(self) -> None:
        """Make pending updates, wait for rounds under way, and leave the job.  Blocks."""
        self._job.leave()

    def initialized(self) -> bool:
        """Return whether `init` was called, and `shutdown` was not."""
        return self._job.is_joined

    def rank(self) -> int:
        """Return the position among the workers, from 0."""
        return self._job.get().rank

    def size(self) -> int:
        """Return how many workers the job has."""
        return self._job.get().size

    def local_rank(self) -> int:
        """Return the position among the workers of this host, from 0."""
        return self._job.get().local_rank

    def local_size(self) -> int:
        """Return how many workers of the job run on this host."""
        return self._job.get().local_size

    def cross_rank(self) -> int:
        """Return the position of this host among those with a worker of this local rank, from 0."""
        return self._job.get().cross_rank

    def cross_size(self) -> int:
        """Return how many hosts have a worker of this local rank."""
        return self._job.get().cross_size

    def is_homogeneous(self) -> bool:
        """Return whether all hosts have equally many workers."""
        return self._job.get().is_homogeneous
