"""The tensors of a call that lie on a device: their way to exchanges and back."""

from typing import List, Optional, Sequence, Tuple

import torch

from bytescheduler.torch._backend.devices.device_watch import Then
from bytescheduler.torch._backend.devices.staging import Staging, Stagings
from bytescheduler.torch._backend.memory import sent
from bytescheduler.torch._device.runtime import Event

__all__ = ["Passage"]


class Passage:
    """Copies the tensors of one call; those of the CPU need no copy, and nothing happens.

    Parameters
    ----------
    stagings : Stagings
        The devices of this process.
    """

    def __init__(self, stagings: Stagings) -> None:
        self._stagings = stagings
        self._staging: Optional[Staging] = None
        self._place = ""  # where all tensors lie; empty: there is none
        self._downloads: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self._begun: Event = None
        self._here: Event = None

    # -- while the plan is made ----------------------------------------------------------------

    def check(self, tensors: Sequence[torch.Tensor]) -> None:
        """Take note of tensors of the call.

        Raises
        ------
        ValueError
            They are not all on the CPU, or all on one device.
        UsageError
            Their device cannot be used, or not now.
        """
        for tensor in tensors:
            staging = self._stagings.of(tensor)
            if not self._place:
                self._place, self._staging = str(tensor.device), staging
                if staging is not None:
                    staging.check_works()
            elif staging is not self._staging:
                raise ValueError(
                    f"one call has tensors on {self._place} and on {tensor.device}; move them to "
                    "one device"
                )

    def send(self, memory: torch.Tensor) -> torch.Tensor:
        """Return memory that exchanges read, with the values of `memory` from the start on."""
        if self._staging is None:
            return memory
        room = self._staging.room(memory.shape, memory.dtype)
        self._download(memory, room)
        return room

    def land(self, tensor: torch.Tensor, *, with_values: bool) -> Optional[torch.Tensor]:
        """Return memory for `upload`, with the values of `tensor` if wanted; None: the CPU has it.

        The CPU may have memory of `room` too.
        """
        staging = self._stagings.of(tensor)
        if staging is None:
            return None
        room = staging.room(tensor.shape, tensor.dtype)
        if with_values:
            self._download(sent(tensor), room.view(-1))
        return room

    def room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return flat memory of the CPU with as many elements as `tensor`, for its values."""
        staging = self._stagings.of(tensor)
        if staging is None:
            return torch.empty(tensor.numel(), dtype=tensor.dtype)
        return staging.room((tensor.numel(),), tensor.dtype)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy the rank's own part: on a device, behind the work on the current stream."""
        if self._stagings.of(target) is None and self._stagings.of(source) is not None:
            self._download(source, target)
        else:
            target.copy_(source)

    def _download(self, source: torch.Tensor, room: torch.Tensor) -> None:
        if source.numel():
            self._downloads.append((source, room))

    # -- while the call is under way -----------------------------------------------------------

    def begin(self) -> None:
        """Begin all downloads, behind the work on the current stream of the caller."""
        staging = self._staging
        if staging is None:
            return
        self._begun = staging.mark()
        if self._downloads:
            with torch.inference_mode():  # else tensors of that mode refuse a copy
                self._here = staging.download(self._downloads, self._begun)
            self._downloads = []  # lent to the device

    @property
    def is_late(self) -> bool:
        """True if exchanges have to wait for `when_here`."""
        return self._here is not None

    def when_here(self, timeout_s: float, then: Then) -> None:
        """Let `then` be called, on another thread, once all downloads are over, or have failed."""
        assert self._staging is not None
        self._staging.watch.add(self._here, timeout_s, then)

    def upload(self, room: torch.Tensor, target: torch.Tensor) -> None:
        """Copy memory of `land` to its tensor.  Any thread."""
        assert self._staging is not None
        if target.numel():
            self._staging.upload(room, target, self._begun)

    def follow(self) -> None:
        """Let the current stream of the caller use the results.

        A call without tensors, such as a barrier, is one of all devices.
        """
        for staging in self._all():
            staging.follow()

    @property
    def devices(self) -> List[torch.device]:
        """The devices of the call, as futures of PyTorch want them."""
        return [device for staging in self._all() for device in staging.devices]

    def _all(self) -> List[Staging]:
        if not self._place:
            return self._stagings.opened()
        return [] if self._staging is None else [self._staging]
