"""Tensors of the processor's memory as tensors on doubles of devices, for the backend's calls."""

from typing import Callable, List, Optional, Set, Type

import torch
from fake_device import FakeRuntime

from bytescheduler.torch._backend.devices.staging import Staging

# Returns which of two doubles has a tensor, or None if the processor has it.
Place = Callable[[torch.Tensor], Optional[int]]


class _Pinning(FakeRuntime):
    """A double that knows what it has pinned, as this memory is the processor's own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._rooms: List[torch.Tensor] = []  # kept, so that no address comes again
        self._addresses: Set[int] = set()

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        memory = super().pinned(like)
        if memory.numel():
            self._rooms.append(memory)
            self._addresses.add(memory.data_ptr())
        return memory

    def has_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._addresses


class FakeStagings:
    """See `Stagings`: all tensors of calls are on the first double, unless `place` tells another.

    Parameters
    ----------
    seed : int
        Of the doubles.
    place : callable, optional
        See `Place`.
    kind : type
        The class to test, or one that makes a mistake.
    """

    def __init__(
        self, seed: int = 0, place: Place = lambda tensor: 0, kind: Type[Staging] = Staging
    ) -> None:
        self.runtimes = [_Pinning(100 * seed + at) for at in range(2)]
        self._stagings = [kind(runtime) for runtime in self.runtimes]
        self._place = place

    @property
    def runtime(self) -> FakeRuntime:
        """The first double."""
        return self.runtimes[0]

    def of(self, tensor: torch.Tensor) -> Optional[Staging]:
        if any(runtime.has_pinned(tensor) for runtime in self.runtimes):
            return None
        at = self._place(tensor)
        return None if at is None else self._stagings[at]

    def opened(self) -> List[Staging]:
        return self._stagings

    def synchronize(self) -> None:
        """Let the doubles do all their work."""
        for runtime in self.runtimes:
            runtime.check()
            while runtime.has_work:
                runtime.run_until(lambda: not runtime.has_work)  # noqa: B023 - it is called here

    def close(self) -> None:
        """End the threads, and find mistakes in work that is left."""
        for staging in self._stagings:
            staging.watch.close()
        self.synchronize()
