"""The part of a session that process groups use."""

from typing import Optional, Protocol

from bytescheduler._native import Completions
from bytescheduler._session.rounds import Exchange
from bytescheduler.errors import Error

__all__ = ["Carrier", "Ending"]


class Ending(Protocol):
    """An exchange under way."""

    def over(self) -> bool:
        """Return whether it has ended; raise its error if it failed."""

    def wait_for(self, timeout_ms: int) -> bool:
        """Block up to `timeout_ms`; return whether it has ended, raise its error if it failed."""


class Carrier(Protocol):
    """Starts exchanges; see `RoundSession`."""

    def new_completions(self) -> Completions:
        """Return the ends of exchanges that are started with it."""

    def start_exchange(
        self,
        exchange: Exchange,
        *,
        owner: object,
        timeout_s: float,
        completions: Optional[Completions],
        token: int,
        priority: int,
    ) -> Ending:
        """Begin an exchange; never blocks."""

    def reprioritise_exchange(self, key: int, priority: int) -> None:
        """Give an exchange another priority, for what is not sent; nothing if it is over."""

    def quit_exchange(self, key: int, reason: str) -> None:
        """End an exchange for this rank, and for all ranks that wait in it."""

    @property
    def failure(self) -> Optional[Error]:
        """The error that the job failed with, or None."""

    def error_of(self, error: Error) -> Error:
        """Return an error of the engine in the words of users."""
