"""Copies between a device and the processor, each behind the work that it needs."""

from typing import Optional, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._device.runtime import Event, Runtime

__all__ = ["Device"]


class Device:
    """Orders copies by events; the processor waits for none of them.

    Parameters
    ----------
    runtime : Runtime
        The device itself.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._down = runtime.stream()
        self._up = runtime.stream()

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Return memory of the processor that the device reaches, for a tensor like this one."""
        return self._runtime.pinned(like)

    def check_works(self, name: str) -> None:
        """Raise UsageError, with `name`, if the current stream is captured into a graph.

        Each replay would start a round that is over.
        """
        if self._runtime.is_capturing():
            raise UsageError(
                f"{name}: a CUDA graph is captured, and its replays cannot send a gradient again; "
                "capture the model without its backward, or train without graphs",
                5,
            )

    def download(self, source: torch.Tensor, stage: torch.Tensor) -> None:
        """Copy `source` to `stage` when the work on the current stream is done."""
        self._down.wait_event(self._runtime.current().record_event())
        self._runtime.copy(self._down, source, stage)

    def then_call(self, starter: Tuple[int, int], after: Optional[Event]) -> None:
        """Call a C function, with its argument, after all downloads and `after`."""
        if after is not None:
            self._down.wait_event(after)
        self._runtime.call(self._down, *starter)

    def then_call_here(self, starter: Tuple[int, int]) -> None:
        """Call a C function, with its argument, after the work on the current stream."""
        self._down.wait_event(self._runtime.current().record_event())
        self._runtime.call(self._down, *starter)

    def room(self, like: torch.Tensor) -> torch.Tensor:
        """Return memory of the device that is free when the work on the current stream is done."""
        current = self._runtime.current()
        tensor = self._runtime.empty(current, like)
        self._runtime.lend(tensor, current)
        return tensor

    def lend(self, tensor: torch.Tensor) -> None:
        """Let the memory of `tensor` be free only after the work on the current stream now."""
        self._runtime.lend(tensor, self._runtime.current())

    def upload(self, stage: torch.Tensor) -> Tuple[torch.Tensor, Event]:
        """Return a copy of `stage` that the current stream can use, and the end of the copy."""
        tensor = self._runtime.empty(self._up, stage)
        self._runtime.copy(self._up, stage, tensor)
        event = self._up.record_event()
        current = self._runtime.current()
        current.wait_event(event)
        self._runtime.lend(tensor, current)
        return tensor, event

    def mark(self) -> Event:
        """Return the end of the work on the current stream."""
        return self._runtime.current().record_event()

    def follow(self, event: Event) -> None:
        """Let the current stream wait for `event`."""
        self._runtime.current().wait_event(event)

    def check(self) -> None:
        """Raise the error that the device has, if it has one.

        A stream that is captured is not asked, as that would end the capture.
        """
        if not self._runtime.is_capturing():
            self._runtime.check()
