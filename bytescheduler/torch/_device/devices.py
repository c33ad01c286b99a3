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
        where = tensor.device
        if where.type == "cpu":
            return None
        if where.type != "cuda" or torch.version.hip is not None:
            kind = "AMD's GPUs" if where.type == "cuda" else f"devices such as {where}"
            raise UsageError(
                f"{name}: it is on {where}; gradients travel from the CPU and from NVIDIA's GPUs, "
                f"not from {kind}: move it there first, tensor.cpu()",
                5,
            )
        if where not in self._known:
            self._known[where] = Device(Cuda(where, Driver(name)))
        return self._known[where]
