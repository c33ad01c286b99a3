"""The job: join it, ask about it, leave it."""

from bytescheduler.torch._job.job import current

__all__ = [
    "init",
    "initialized",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]


def init(lazy: bool = False) -> None:
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
    current().join()


def shutdown() -> None:
    """Make pending updates, wait for rounds under way, and leave the job.  Blocks."""
    current().leave()


def initialized() -> bool:
    """Return whether `init` was called, and `shutdown` was not."""
    return current().is_joined


is_initialized = initialized


def rank() -> int:
    """Return the position among the workers, from 0."""
    return current().get().rank


def size() -> int:
    """Return how many workers the job has."""
    return current().get().size


def local_rank() -> int:
    """Return the position among the workers of this host, from 0."""
    return current().get().local_rank


def local_size() -> int:
    """Return how many workers of the job run on this host."""
    return current().get().local_size
