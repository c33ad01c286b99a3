"""The calls that a session makes to the framework of its tensors."""

from typing import Optional, Protocol, Type

from bytescheduler.errors import ConfigError

__all__ = ["Framework", "Operations"]


class Framework(Protocol):
    """A framework, such as MXNet, beside its session."""

    @property
    def error(self) -> Type[Exception]:
        """The exception that users of the framework catch; it takes a text."""

    @property
    def config_error(self) -> Type[ConfigError]:
        """The `error` for a wrong setting by which the job failed; takes a text and a code."""

    @property
    def owner(self) -> str:
        """The word for the owner of a session, such as "store"; messages say it."""

    def abandon(self) -> None:
        """Take care that nothing waits for, or dies of, a job that failed.  May block."""

    def release(self) -> None:
        """Give up the framework's own place in the job, which is well.  May block."""

    def forget(self) -> None:
        """Keep destructors from waiting, in a forked child, for threads of the parent."""


class Operations(Protocol):
    """The operations that the framework's own engine has to do for a session."""

    def pending(self) -> int:
        """Return how many operations are registered and not over."""

    def drain(self, timeout: Optional[float] = None) -> bool:
        """Take no more, wait up to `timeout` seconds until none is pending; return whether so."""

    def close(self) -> None:
        """Give up the operations, none of which may be pending."""
