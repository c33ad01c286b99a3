"""The arguments of c10d's calls: options by name or by position, and checks of tensors."""

import datetime
from typing import Any, List, Sequence, Union

import torch
from torch.distributed import ReduceOp

from bytescheduler.torch._backend.labels import tensors_text
from bytescheduler.torch._backend.memory import check_alike

__all__ = [
    "Tensors",
    "check_like",
    "check_pairs",
    "check_size",
    "checked_rank",
    "flat",
    "is_asynchronous",
    "listed",
    "only",
    "operation_of",
    "root_of",
    "rows_of",
    "shards_of",
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
    for limit in (timeout, options, getattr(options, "timeout", None)):
        if isinstance(limit, datetime.timedelta) and limit > datetime.timedelta(0):
            return limit.total_seconds()
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


def shards_of(tensor: torch.Tensor, like: torch.Tensor, count: int) -> List[torch.Tensor]:
    """Cut a tensor into one shard a rank, each with the elements of `like`.

    Raises
    ------
    ValueError
        Its size is not that of all shards, or it has another dtype.
    """
    check_alike([tensor], like.dtype)
    if tensor.numel() != like.numel() * count:
        raise ValueError(
            f"{tensors_text([tensor])} does not hold {count} times {tensors_text([like])}"
        )
    if not tensor.numel():
        return [tensor.detach().reshape(-1)] * count
    if tensor.is_contiguous():
        return list(tensor.detach().view(count, -1).unbind(0))
    if tensor.dim() and tensor.shape[0] == count * (like.shape[0] if like.dim() else 1):
        return list(tensor.detach().chunk(count, 0))
    raise ValueError(f"{tensors_text([tensor])} is not contiguous; hand over tensor.contiguous()")


def rows_of(tensor: torch.Tensor, counts: Sequence[int], size: int) -> Sequence[torch.Tensor]:
    """Cut a tensor into rows for each rank; without `counts` each gets the same.

    Raises
    ------
    ValueError
        The counts are not those of the tensor.
    """
    rows = tensor.shape[0] if tensor.dim() else 0
    if not counts and rows % size:
        raise ValueError(f"{rows} rows cannot be shared by {size} ranks; give split sizes")
    shares = list(counts) or [rows // size] * size
    if len(shares) != size or sum(shares) != rows or min(shares) < 0:
        raise ValueError(f"split sizes {shares} do not share {rows} rows among {size} ranks")
    parts: Sequence[torch.Tensor] = tensor.detach().split(shares)
    return parts


def check_like(tensors: Sequence[torch.Tensor], count: int, dtype: torch.dtype) -> None:
    """Raise ValueError unless there is a tensor of this dtype for each rank."""
    if len(tensors) != count:
        raise ValueError(f"{len(tensors)} tensors for {count} ranks; give one for each")
    check_alike(tensors, dtype)


def check_size(tensor: torch.Tensor, like: torch.Tensor) -> None:
    """Raise ValueError unless both have as many elements."""
    if tensor.numel() != like.numel():
        raise ValueError(
            f"{tensors_text([tensor])} does not have the size of {tensors_text([like])}"
        )


def check_pairs(outputs: Sequence[object], sources: Sequence[object]) -> None:
    """Raise ValueError unless there are as many outputs as inputs."""
    if len(outputs) != len(sources):
        raise ValueError(f"{len(outputs)} outputs for {len(sources)} inputs; give one for each")
