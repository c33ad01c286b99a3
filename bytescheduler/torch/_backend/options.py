"""The options of c10d's calls, by name or by position."""

from typing import Any, List, Sequence, Union

import torch
from torch.distributed import ReduceOp

__all__ = ["flat", "is_asynchronous", "listed", "operation_of", "root_of", "timeout_of"]

Tensors = Union[torch.Tensor, Sequence[Any]]


def listed(tensors: Tensors) -> List[Any]:
    """Return a list of tensors, or of lists of them; a single tensor is a list of one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def flat(tensors: Tensors) -> List[torch.Tensor]:
    """Return all tensors of a list of lists."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for item in tensors for tensor in flat(item)]


def timeout_of(options: object, usual_s: float) -> float:
    """Return the seconds that a call may take; `usual_s` where it does not say."""
    timeout = getattr(options, "timeout", None)
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else usual_s


def is_asynchronous(options: object) -> bool:
    """Return whether the caller may drop the handle, or ask for its future."""
    return bool(getattr(options, "asyncOp", True))


def root_of(options: Any) -> int:  # noqa: ANN401 - PyTorch's types are not read
    """Return the rank that has the result, or the values; `options` may be that rank."""
    return int(getattr(options, "rootRank", options or 0))


def operation_of(options: object) -> object:
    """Return the operation; `options` may be it."""
    if options is None:
        return ReduceOp.SUM
    return getattr(options, "reduceOp", options)
