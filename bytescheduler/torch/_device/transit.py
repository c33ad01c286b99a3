"""The rounds of a tensor on a device, through memory that the engine reads too."""

from typing import Optional

import torch

from bytescheduler._native import Pending
from bytescheduler._session.rounds import RoundCall
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.runtime import Event
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["CopiedRound", "Transit"]

_LOOK_EVERY_MS = 250


class CopiedRound:
    """A round that starts when its device gets to it.

    Parameters
    ----------
    pending : Pending
        Deferred; it keeps all memory alive that the copy uses.
    session : TorchSession
        Carries it.
    device : Device
        Starts it.
    """

    def __init__(self, pending: Pending, session: TorchSession, device: Device) -> None:
        self._pending = pending
        self._session = session
        self._device = device

    def over(self) -> bool:
        """See `Pending`; it also raises an earlier error of the device or the job."""
        if self._pending.over():
            return True
        self._check_others()
        return False

    def wait(self) -> None:
        """See `Pending`; it also raises an earlier error of the device or the job."""
        while not self._pending.wait_for(_LOOK_EVERY_MS):
            self._check_others()

    def _check_others(self) -> None:
        self._device.check()
        failure = self._session.failure
        if failure is not None:
            raise failure


class Transit:
    """Two pieces of memory for a tensor: the first is sent, the second receives.

    Parameters
    ----------
    device : Device
        Reaches both.
    like : Tensor
        Has the dtype and the strides of the tensors that travel.
    """

    def __init__(self, device: Device, like: torch.Tensor) -> None:
        self._device = device
        self._sent = device.pinned(like)
        self.received = device.pinned(like)
        self._read: Optional[Event] = None  # since then no upload reads `received`

    def start(
        self, session: TorchSession, key: int, source: torch.Tensor, call: RoundCall
    ) -> CopiedRound:
        """Start a round when the current stream has made `source`, and a copy of it is here."""
        how = call._replace(deferred=True, source=source)
        pending = session.start(key, self._sent, self.received, how)
        self._device.download(source, self._sent)
        self._device.then_call(pending.starter, self._read)
        return CopiedRound(pending, session, self._device)

    def start_here(
        self, session: TorchSession, key: int, source: torch.Tensor, call: RoundCall
    ) -> CopiedRound:
        """Do the same with a `source` that lies in the processor's memory."""
        pending = session.start(key, source, self.received, call._replace(deferred=True))
        self._device.then_call(pending.starter, self._read)
        return CopiedRound(pending, session, self._device)

    def finish(self) -> torch.Tensor:
        """Return the sum of the finished round, as the current stream can use it."""
        tensor, self._read = self._device.upload(self.received)
        return tensor
