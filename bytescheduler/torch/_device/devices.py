"""The devices of this process, by the tensors that lie on them."""

from typing import Dict, Optional

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._device.cuda import Cuda
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.driver import Driver

__all__ = ["Devices"]


class Devices:
    """Opens each device when its first tensor comes."""

    def __init__(self) -> None:
        self._known: Dict[torch.device, Device] = {}

    def of(self, tensor: torch.Tensor, name: str) -> Optional[Device]:
        """Return the device on which `tensor` lies; None: the processor reads its memory itself.

        Raises
        ------
        UsageError
            It is not one of those that this package knows; the message has `name`.
        """
        device = tensor.device
        if device.type == "cpu":
            return None
        if device.type != "cuda" or torch.version.hip is not None:
            kind = "AMD's GPUs" if device.type == "cuda" else f"devices such as {device}"
            raise UsageError(
                f"{name}: it is on {device}; gradients travel from the CPU and from NVIDIA's GPUs, "
                f"not from {kind}: move it there first, tensor.cpu()",
                5,
            )
        if device not in self._known:
            self._known[device] = Device(Cuda(device, Driver(name)))
        return self._known[device]
