"""Memory of tensors, and how many tensors have it."""

import sys

import torch

__all__ = ["COUNTS", "is_alone", "is_shared", "tensors_on"]

# Without these, nothing is known of other tensors in the same memory.
_count = getattr(torch._C, "_storage_Use_Count", None)
_uses = getattr(torch.Tensor, "_use_count", None)
COUNTS = _count is not None and _uses is not None


def tensors_on(tensor: torch.Tensor) -> int:
    """Return how many tensors have the memory of this one; 0: it is not known."""
    if _count is None:
        return 0
    return int(_count(tensor.untyped_storage()._cdata)) - 1  # the storage's own object counts too


def is_shared(tensor: torch.Tensor) -> bool:
    """Return whether other tensors may have the memory of this one."""
    return tensors_on(tensor) != 1


def is_alone(tensor: torch.Tensor, names: int) -> bool:
    """Return whether nothing refers to a tensor but `names` variables of Python.

    The parameter of this function is none of them.  Other tensors may have its memory.
    """
    # The parameter, and the argument of `getrefcount`.
    return _uses is not None and sys.getrefcount(tensor) <= names + 2 and _uses(tensor) == 1
