"""A GPU, by PyTorch's own streams and by the driver."""

from typing import Any

import torch

from bytescheduler.torch._device.driver import Driver

__all__ = ["Cuda"]

_Stream = Any  # torch.cuda.Stream


class Cuda:
    """See `Runtime`.

    Parameters
    ----------
    device : torch.device
        One GPU.
    driver : Driver
        Its library, which calls the engine.
    """

    def __init__(self, device: torch.device, driver: Driver) -> None:
        self._device = device
        self._driver = driver

    def current(self) -> _Stream:
        """See `Runtime`."""
        return torch.cuda.current_stream(self._device)

    def stream(self) -> _Stream:
        """See `Runtime`."""
        return torch.cuda.Stream(self._device)

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """See `Runtime`."""
        return torch.empty_like(like, device="cpu", pin_memory=True, requires_grad=False)

    def empty(self, stream: _Stream, like: torch.Tensor) -> torch.Tensor:
        """See `Runtime`."""
        with torch.cuda.stream(stream):
            return torch.empty_like(like, device=self._device, pin_memory=False)

    def lend(self, tensor: torch.Tensor, stream: _Stream) -> None:
        """See `Runtime`."""
        tensor.record_stream(stream)

    def copy(self, stream: _Stream, source: torch.Tensor, target: torch.Tensor) -> None:
        """See `Runtime`."""
        with torch.cuda.stream(stream), torch.no_grad():
            target.copy_(source, non_blocking=True)

    def call(self, stream: _Stream, function: int, argument: int) -> None:
        """See `Runtime`."""
        with torch.cuda.stream(stream):  # the driver wants the device's context
            self._driver.launch(stream.cuda_stream, function, argument)

    def is_capturing(self) -> bool:
        """See `Runtime`."""
        return bool(torch.cuda.is_current_stream_capturing())

    def check(self) -> None:
        """See `Runtime`."""
        self.current().query()
