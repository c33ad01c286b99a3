"""The layout of gradients in memory, in which all workers send them."""

from typing import Any, List

import torch

from bytescheduler.torch._gradients.slot import Slot
from bytescheduler.torch._sums.objects import TensorObjects

__all__ = ["agree_on_strides", "empty_gradient", "on_processors"]


def agree_on_strides(objects: TensorObjects, slots: List[Slot]) -> None:
    """Let gradients travel contiguous where workers have other strides.

    Blocks until all workers call it.
    """
    by_rank: List[Any] = objects.gather_unequal([slot.stride for slot in slots])
    for at, slot in enumerate(slots):
        if any(strides[at] != by_rank[0][at] for strides in by_rank):
            slot.stride = torch.empty(slot.shape, device="meta").stride()


def on_processors(objects: TensorObjects, slots: List[Slot]) -> List[Slot]:
    """Return those of `slots` that are on no worker's device, the same on every worker.

    Blocks until all workers call it.
    """
    here = [slot.name for slot in slots if slot.device is not None]
    names = set(here)
    by_rank: List[Any] = objects.gather_unequal(here)
    for on_devices in by_rank:
        names.update(on_devices)
    return [slot for slot in slots if slot.name not in names]


def empty_gradient(slot: Slot) -> torch.Tensor:
    """Return memory for a gradient, with the strides of all workers."""
    param = slot.param
    with torch._C.DisableTorchFunctionSubclass():  # it is no use of a weight
        return torch.empty_strided(param.shape, slot.stride, dtype=param.dtype, device=param.device)
