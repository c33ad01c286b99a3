"""The few things that a device must be able to do; tests have one whose work comes late.

Nothing here waits for the device: a call puts work on a stream, and returns.
"""

from typing import Any, Protocol

import torch

__all__ = ["Event", "Runtime", "Stream"]

Event = Any  # a point in the work of a stream; `query` returns whether the device has come to it


class Stream(Protocol):
    """A queue of work, which the device does in order."""

    def record_event(self) -> Event:
        """Return the end of the work that is on it."""

    def wait_event(self, event: Event) -> None:
        """Let work that comes later wait for `event`."""


class Runtime(Protocol):
    """One device."""

    def current(self) -> Stream:
        """Return the stream that PyTorch's operations of this thread use now."""

    def stream(self) -> Stream:
        """Return a new stream."""

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Return memory of the processor that the device reaches, for a tensor like this one."""

    def empty(self, stream: Stream, like: torch.Tensor) -> torch.Tensor:
        """Return memory of the device, which `stream` can use at once."""

    def lend(self, tensor: torch.Tensor, stream: Stream) -> None:
        """Let the memory of `tensor` be free only after the work that is on `stream` then."""

    def copy(self, stream: Stream, source: torch.Tensor, target: torch.Tensor) -> None:
        """Put a copy on `stream`.

        The memory from `pinned` is kept until it is over; that of the device is the caller's to
        keep.
        """

    def call(self, stream: Stream, function: int, argument: int) -> None:
        """Put a call on `stream`, of a C function that takes a pointer."""

    def is_capturing(self) -> bool:
        """Return whether the current stream records its work, and does none of it."""

    def check(self) -> None:
        """Raise the error that the device has, if it has one."""
