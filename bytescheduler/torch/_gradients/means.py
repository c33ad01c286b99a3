"""Gradients that become means: the tensor in `p.grad` stays, and takes the memory of the mean.

A tensor that shares its memory with more than it takes a copy, so that all of them are the mean.
"""

from typing import Dict, List, Optional, Sequence, Tuple

import torch

from bytescheduler.torch._gradients.bundle import copy_all
from bytescheduler.torch._gradients.memory import all_tensors_on, is_shared, tensors_on
from bytescheduler.torch._gradients.slot import Slot

__all__ = [
    "become_mean",
    "become_means",
    "fits",
    "is_left",
    "kept_mean",
    "leave",
    "lend_mean",
    "seen_elsewhere",
    "take_back",
    "zeros_as",
]

_LEFT = "_bytescheduler_left"  # an attribute of gradients that a step left: their version then


def fits(slot: Slot, grad: torch.Tensor) -> bool:
    """Return whether the memory of a gradient is what the engine sends and receives."""
    return grad.stride() == slot.stride and not grad.is_conj() and not grad.is_neg()


def become_mean(slot: Slot, grad: torch.Tensor, mean: torch.Tensor) -> None:
    """Let `grad` be `mean`, which has arrived; what was sent becomes the next memory."""
    has_others = is_shared(grad)
    if has_others or grad.stride() != slot.stride or is_shared(mean):
        if torch._debug_has_internal_overlap(grad) == 0 and not _has_weights(slot, grad):
            with torch.no_grad():
                grad.copy_(mean)
            return
        mean = mean.clone()
    is_next = slot.device is None and fits(slot, grad) and not has_others
    if slot.bundle is None:
        _receive_into(slot, grad.detach() if is_next else None)
    grad.data = mean


def become_means(pairs: Sequence[Tuple[Slot, torch.Tensor]]) -> None:
    """Let gradients of members of bundles be their means, which have arrived, all by one copy."""
    usual: List[Tuple[torch.Tensor, torch.Tensor]] = []
    for slot, grad in pairs:
        mean = _mean_of(slot)
        # A tensor of these strides has no element twice.
        if grad.stride() != slot.stride or grad.data_ptr() == slot.param.data_ptr():
            become_mean(slot, grad, mean)
        else:
            usual.append((grad.data, mean))  # no change of `grad` is counted
    with torch.no_grad():
        copy_all([grad for grad, _ in usual], [mean for _, mean in usual])


def _mean_of(slot: Slot) -> torch.Tensor:
    """Return the part of a bundle's memory."""
    assert slot.recv is not None
    return slot.recv


def lend_mean(slot: Slot, grad: torch.Tensor, mean: torch.Tensor) -> None:
    """Let `grad`, which nothing else refers to, be `mean` for an update; see `take_back`."""
    if mean is slot.recv or not is_shared(mean):
        grad.data = mean
    else:
        become_mean(slot, grad, mean)


def take_back(slot: Slot) -> None:
    """Let the memory of a mean that was lent stay the next memory, unless something kept it."""
    if slot.bundle is None and slot.recv is not None and is_shared(slot.recv):
        _receive_into(slot, None)


def _has_weights(slot: Slot, grad: torch.Tensor) -> bool:
    return bool(grad.data_ptr() == slot.param.data_ptr())


def _receive_into(slot: Slot, memory: Optional[torch.Tensor]) -> None:
    """Let `memory` be where the next mean is; None: it is made then."""
    assert slot.passage is not None
    if slot.passage.received is slot.recv:
        slot.passage.received = memory
    slot.recv = memory


def kept_mean(slot: Slot, mean: torch.Tensor) -> torch.Tensor:
    """Return a mean that no later round overwrites."""
    if is_shared(mean):
        return mean.clone()
    _receive_into(slot, None)
    return mean


def zeros_as(param: torch.Tensor) -> torch.Tensor:
    """Return zeros for the gradient of a parameter."""
    with torch.inference_mode(False), torch._C.DisableTorchFunctionSubclass():  # it is no use
        return torch.zeros_like(param, requires_grad=False)


# -- memory that has several tensors -----------------------------------------------------------


def seen_elsewhere(slots: List[Slot]) -> List[Slot]:
    """Return the slots whose gradients, which were sent, a script can use by other tensors.

    Gradients that backward made as parts of one tensor are no such tensors for each other.
    """
    counts = all_tensors_on([slot.sent for slot in slots if slot.sent is not None])
    if max(counts, default=0) <= 1 and len({id(slot.sent) for slot in slots}) == len(slots):
        return []
    by_memory: Dict[int, List[Slot]] = {}
    for slot in slots:
        if slot.sent is not None:
            by_memory.setdefault(slot.sent.untyped_storage().data_ptr(), []).append(slot)
    seen = []
    for together in by_memory.values():
        first = together[0].sent
        assert first is not None
        size = sum(slot.elements for slot in together) * first.element_size()
        if tensors_on(first) > len(together) or size > first.untyped_storage().nbytes():
            seen += together
    return seen


# -- gradients that a step left ----------------------------------------------------------------


def leave(param: torch.Tensor) -> None:
    """Note that a gradient is what a step, or `zero_grad()`, has left, and nothing new."""
    grad = param.grad
    if grad is not None:
        grad.__dict__[_LEFT] = grad._version


def is_left(grad: torch.Tensor) -> bool:
    """Return whether nothing but zeros came to a gradient since `leave`."""
    version = grad.__dict__.get(_LEFT)
    return version is not None and (version == grad._version or not bool(grad.any()))
