"""One parameter of an optimizer: its rounds, its memory, and its state."""

from typing import Optional

import torch

from bytescheduler._session.rounds import Round
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.runtime import Event
from bytescheduler.torch._gradients.bundle import Bundle
from bytescheduler.torch._sums.passage import Passage

__all__ = ["ARMED", "IDLE", "PUSHED", "SUMMED", "Slot", "touch"]

# Nothing is under way, and the weights are the newest.
IDLE = 0
# Backward has sent the gradient, and step() has not come.
PUSHED = 1
# step() has come, and the update waits for the sum.
ARMED = 2
# The gradient is the mean over all workers, and step() has not come.
SUMMED = 3


def touch(tensor: torch.Tensor) -> None:
    """Count a change of `tensor`, and of all that counts with it, without changing an element."""
    with torch.no_grad():
        tensor.detach().as_strided((0,), (1,)).zero_()


class Slot:
    """The state of one parameter; `Gradients` changes it.

    Parameters
    ----------
    index : int
        The position among the slots, the same on every worker.
    name : str
        What messages call it.
    param : Parameter
        Not empty.
    group : int
        The parameter group of the optimizer that it is in; 0 without an optimizer.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "bundle",
        "device",
        "dtype",
        "element_bytes",
        "elements",
        "group",
        "guards",
        "had_gradient",
        "index",
        "key",
        "name",
        "param",
        "passage",
        "passes",
        "pending",
        "place",
        "priority",
        "recv",
        "sent",
        "shape",
        "size_bytes",
        "state",
        "stride",
        "updated",
        "version",
        "weight_version",
    )

    def __init__(self, index: int, name: str, param: torch.nn.Parameter, group: int = 0) -> None:
        self.index = index
        self.name = name
        self.param = param
        self.elements = param.numel()
        self.element_bytes = int(param.element_size())
        self.size_bytes = self.elements * self.element_bytes
        self.group = group
        self.key = 0
        self.bundle: Optional[Bundle[Slot]] = None  # has the round and the memory, if there is one
        self.priority = -index
        self.state = IDLE
        self.guards = 0  # modules that wait for it
        self.passes = 0  # by backward since the latest step
        self.pending: Optional[Round] = None
        self.sent: Optional[torch.Tensor] = None  # the gradient that backward made
        self.version = 0  # how often it had been changed when it was sent
        self.weight_version = 0  # how often the weight had been changed at step()
        self.address = 0  # where it lay then
        self.had_gradient = False
        # Where sums arrive: dense, with the parameter's strides where that is dense.
        self.recv: Optional[torch.Tensor] = None
        self.dtype = param.dtype  # which its gradients have
        self.shape = param.shape  # likewise
        self.place = param.device  # where gradients are taken from
        self.device: Optional[Device] = None  # that the parameter is on, if not the processor's
        self.passage: Optional[Passage] = None  # on a device it has the memory of sums
        self.updated: Optional[Event] = None  # on a device: since then it has the newest weights
        self.stride = torch.empty_like(param, device="meta").stride()  # that gradients travel with

    @property
    def is_replaced(self) -> bool:
        """True if a script has dropped the gradient that was sent, or replaced it."""
        return self.state == PUSHED and self.param.grad is not self.sent

    @property
    def is_anew(self) -> bool:
        """True if a pass of backward began with no gradient, as a script has dropped it."""
        grad, before = self.param.grad, self.sent
        if grad is before or before is None:
            return False
        # Backward itself makes another tensor of a sum that has a graph, or of a sparse one.
        is_strided = grad.layout is before.layout is torch.strided
        return grad.grad_fn is None and is_strided
