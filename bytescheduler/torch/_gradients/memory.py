"""Memory of tensors, and how many tensors have it."""

import sys
from typing import List, Optional, Sequence

import torch

__all__ = ["COUNTS", "all_tensors_on", "are_alone", "is_shared", "tensors_on"]

# Without these, nothing is known of other tensors in the same memory.
_count = getattr(torch._C, "_storage_Use_Count", None)
_uses = getattr(torch.Tensor, "_use_count", None)
COUNTS = _count is not None and _uses is not None


def tensors_on(tensor: torch.Tensor) -> int:
    """Return how many tensors have the memory of this one; 0: it is not known."""
    return all_tensors_on([tensor])[0]


def all_tensors_on(tensors: Sequence[torch.Tensor]) -> List[int]:
    """Do as `tensors_on` for several tensors."""
    if _count is None:
        return [0] * len(tensors)
    # The storage's own object counts too.
    return [_count(tensor.untyped_storage()._cdata) - 1 for tensor in tensors]


def is_shared(tensor: torch.Tensor) -> bool:
    """Return whether other tensors may have the memory of this one."""
    return tensors_on(tensor) != 1


def are_alone(tensors: Sequence[Optional[torch.Tensor]], names: int) -> List[bool]:
    """Return for each tensor whether nothing refers to it but `names` variables of Python.

    `tensors` is none of these.  Other tensors may have its memory.
    """
    if _uses is None:
        return [False] * len(tensors)
    most, uses = names + _OWN, _uses
    return [
        tensor is not None and count <= most and uses(tensor) == 1
        for tensor, count in zip(tensors, _references(tensors))
    ]


def _references(values: Sequence[object]) -> List[int]:
    return [sys.getrefcount(value) for value in values]


# Versions of Python count the variable of the loop and the argument of `getrefcount` or not.
_OWN = _references([object()])[0]
