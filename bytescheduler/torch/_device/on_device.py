"""The rounds of a tensor whose sums a library makes where it lies: the engine passes addresses."""

from typing import List, Optional, Tuple

import torch

from bytescheduler._native import Pending
from bytescheduler._session.rounds import RoundCall
from bytescheduler.errors import Error
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.transit import CopiedRound
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["DeviceRound", "OnDevice"]

# Memory of rounds that have failed.  A kernel of the library may outlive them, and change it until
# the process ends.
_KEPT: List[object] = []


class DeviceRound(CopiedRound):
    """A round whose memory is never given back if it fails.

    Parameters
    ----------
    pending : Pending
        Deferred.
    session : TorchSession
        Carries it.
    device : Device
        Starts it.
    memory : tuple of UntypedStorage
        That of the tensors.
    """

    def __init__(
        self,
        pending: Pending,
        session: TorchSession,
        device: Device,
        memory: Tuple[torch.UntypedStorage, ...],
    ) -> None:
        super().__init__(pending, session, device)
        self._memory = memory

    def __del__(self) -> None:
        """Keep the memory; the engine does so by itself while a round is not over."""
        try:
            self._pending.over()
        except Error:
            _KEPT.append(self._memory)


class OnDevice:
    """Sums in the memory of a device, which the processor does not touch.

    A round is over when its sum is complete on the device, so that no stream waits for it.

    Parameters
    ----------
    device : Device
        Has the tensors.
    like : Tensor
        Has their dtype and strides, and lies on the device.
    """

    def __init__(self, device: Device, like: torch.Tensor) -> None:
        self._device = device
        self._like = torch.empty_like(like, device="meta")
        self._sum: Optional[torch.UntypedStorage] = None  # memory of the latest round
        self._factor = 1.0  # by which it is to be multiplied

    def start(
        self, session: TorchSession, key: int, source: torch.Tensor, call: RoundCall
    ) -> DeviceRound:
        """Start a round when the current stream has made `source`."""
        total = self._room()
        self._sum = total.untyped_storage()
        self._factor = 1.0 / session.num_workers if call.average else 1.0
        how = call._replace(deferred=True, average=False)
        pending = session.start_on_device(key, source, total, how)
        memory = source.untyped_storage(), self._sum
        started = DeviceRound(pending, session, self._device, memory)
        self._device.then_call_here(pending.starter)
        return started

    def start_here(
        self, session: TorchSession, key: int, source: torch.Tensor, call: RoundCall
    ) -> DeviceRound:
        """Do the same with zeros, as `source` has no gradient and lies elsewhere."""
        return self.start(session, key, self._room().zero_(), call)

    def finish(self) -> torch.Tensor:
        """Return the sum, or the mean, of the finished round, as the current stream can use it.

        It can be called again, as the memory of a caller may be short; each call returns a new
        tensor on the same memory.
        """
        assert self._sum is not None
        like = self._like
        with torch.inference_mode(False), torch.no_grad():
            total = torch.empty(0, dtype=like.dtype, device=self._sum.device)
            total.set_(self._sum, 0, like.shape, like.stride())
            self._device.lend(total)
            if self._factor != 1:
                total.mul_(self._factor)
                self._factor = 1.0
        return total

    def _room(self) -> torch.Tensor:
        """Return memory for a tensor that inference mode does not own, whatever the mode is."""
        with torch.inference_mode(False):
            return self._device.room(self._like)
