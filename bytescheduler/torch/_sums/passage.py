"""The way of a tensor: compressed, sent, received, and made a tensor again."""

from typing import Optional, Type, Union

import torch

from bytescheduler._native import Coding
from bytescheduler._session.rounds import Round, RoundCall
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.on_device import OnDevice
from bytescheduler.torch._device.transit import Transit
from bytescheduler.torch._engine.dtypes import is_floating
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._sums.compression import Compressor

__all__ = ["Passage"]


class Passage:
    """Rounds of a tensor, one at a time.

    Parameters
    ----------
    compression : Compressor
        The form in which it travels.
    device : Device, optional
        The device that it is on; None: the processor's memory.
    sums_there : bool
        Sums of floats are made on the device.
    """

    __slots__ = (
        "_compression",
        "_context",
        "_device",
        "_sent",
        "_sums_there",
        "_transit",
        "received",
    )

    def __init__(
        self, compression: Type[Compressor], device: Optional[Device], sums_there: bool = False
    ) -> None:
        self._compression = compression
        self._device = device
        self._context: Optional[torch.dtype] = None
        self._sums_there = sums_there
        self._transit: Union[Transit, OnDevice, None] = None
        self._sent: Optional[torch.Tensor] = None  # read until the round is over
        # The memory that the engine writes to.  Where sums are made on the device, it has the key's
        # first value, until a round starts.
        self.received: Optional[torch.Tensor] = None

    def compress(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the form in which `tensor` travels; `result` undoes the latest call."""
        narrow, self._context = self._compression.compress(tensor)
        return narrow

    def make_room(self, like: torch.Tensor) -> torch.Tensor:
        """Make memory for a sum, of the dtype and strides of `like`, and return it."""
        if self._device is None:
            self.received = torch.empty_like(like)
        else:
            # Servers sum what is coded.
            there = self._sums_there and is_floating(like.dtype) and self.coding_of(like) is None
            if there:
                self._transit = OnDevice(self._device, like)
                self.received = torch.zeros_like(like, device="cpu")
            else:
                self._transit = transit = Transit(self._device, like)
                self.received = transit.received
        return self.received

    def start(
        self,
        session: TorchSession,
        key: int,
        send: torch.Tensor,
        call: RoundCall,
        *,
        is_here: bool = False,
    ) -> Round:
        """Begin a round of a tensor that `compress` returned; there is room.

        Parameters
        ----------
        session : TorchSession
            Carries it.
        key : int
            The engine's.
        send : Tensor
            Must not change until the round is over.
        call : RoundCall
            The options.
        is_here : bool
            It lies in the processor's memory though the tensor is on a device.
        """
        self._sent = send
        if self._transit is None:
            assert self.received is not None
            return session.start(key, send, self.received, call)
        if isinstance(self._transit, OnDevice):
            self.received = None
        start = self._transit.start_here if is_here else self._transit.start
        return start(session, key, send, call)

    def coding_of(self, send: torch.Tensor) -> Optional[Coding]:
        """Return the engine's own coding of a tensor that travels."""
        return self._compression.coding if send.dtype is torch.float32 else None

    def result(self) -> torch.Tensor:
        """Return the tensor that a round has brought, which is over."""
        arrived = self.received if self._transit is None else self._transit.finish()
        assert arrived is not None
        self._sent = None
        return self._compression.decompress(arrived, self._context)
