"""The rounds of a tensor whose sums a library makes where it lies: the engine passes addresses."""

from typing import Optional

import torch

from bytescheduler._session.rounds import RoundCall
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.transit import CopiedRound
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["OnDevice"]


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
        # The key gets its first value here, by the servers.
        self.received = torch.zeros_like(like, device="cpu")
        self._sum: Optional[torch.Tensor] = None
        self._factor = 1.0

    def start(
        self, session: TorchSession, key: int, source: torch.Tensor, call: RoundCall
    ) -> CopiedRound:
        """Start a round when the current stream has made `source`."""
        self._sum = total = self._device.room(source)
        self._factor = 1.0 / session.num_workers if call.average else 1.0
        how = call._replace(deferred=True, average=False)
        pending = session.start_on_device(key, source, total, how)
        self._device.then_call_here(pending.starter)
        return CopiedRound(pending, session, self._device)

    def start_here(
        self, session: TorchSession, key: int, source: torch.Tensor, call: RoundCall
    ) -> CopiedRound:
        """Do the same with zeros, as `source` has no gradient and lies elsewhere."""
        return self.start(session, key, self._device.room(self._like).zero_(), call)

    def finish(self) -> torch.Tensor:
        """Return the sum, or the mean, of the finished round, as the current stream can use it."""
        total, self._sum = self._sum, None
        assert total is not None
        self._device.lend(total)
        return total if self._factor == 1 else total.mul_(self._factor)
