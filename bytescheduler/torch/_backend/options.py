"""The options of c10d's calls, by name or by position."""

import datetime
from typing import Any, List, Sequence, Union

import torch
from torch.distributed import ReduceOp

__all__ = [
    "Tensors",
    "checked_rank",
    "flat",
    "is_asynchronous",
    "listed",
    "only",
    "operation_of",
    "root_of",
    "timeout_of",
]

Tensors = Union[torch.Tensor, Sequence[Any]]


def listed(tensors: Tensors) -> List[Any]:
    """Return a list of tensors, or of lists of them; a single tensor is a list of one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def flat(tensors: Tensors) -> List[torch.Tensor]:
    """Return all tensors of a list of lists."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for item in tensors for tensor in flat(item)]


def only(tensors: Tensors) -> Any:  # noqa: ANN401 - a tensor, or a list
    """Return the only item of a list.

    Raises
    ------
    ValueError
        There are more, as for several devices in a process.
    """
    items = listed(tensors)
    if len(items) != 1:
        raise ValueError(f"{len(items)} tensors where a process has one; call once for each")
    return items[0]


def timeout_of(options: object, timeout: object, usual_s: float) -> float:
    """Return the seconds that a call may take.

    Parameters
    ----------
    options : object
        c10d's, or the time itself.
    timeout : object
        The argument of that name.
    usual_s : float
        The time where neither says any.
    """
    for given in (timeout, options, getattr(options, "timeout", None)):
        if isinstance(given, datetime.timedelta) and given > datetime.timedelta(0):
            return given.total_seconds()
    return usual_s


def is_asynchronous(options: object) -> bool:
    """Return whether the caller may drop the handle, or ask for its future."""
    return bool(getattr(options, "asyncOp", True))


def root_of(options: Any, size: int) -> int:  # noqa: ANN401 - PyTorch's types are not read
    """Return the rank that has the result, or the values; `options` may be that rank.

    Raises
    ------
    ValueError
        A group of this size does not have it.
    """
    return checked_rank(int(getattr(options, "rootRank", options or 0)), size)


def checked_rank(rank: int, size: int) -> int:
    """Return a rank of a group of this size.

    Raises
    ------
    ValueError
        The group does not have it.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank}: the group has the ranks 0 to {size - 1}")
    return rank


def operation_of(options: object) -> object:
    """Return the operation; `options` may be it."""
    if options is None:
        return ReduceOp.SUM
    return getattr(options, "reduceOp", options)
