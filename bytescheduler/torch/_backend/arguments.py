"""Checks of the tensors of a call, and their shards."""

from typing import List, Sequence

import torch

from bytescheduler.torch._backend.labels import tensors_text
from bytescheduler.torch._backend.memory import check_alike

__all__ = ["check_like", "check_pairs", "check_size", "rows_of", "shards_of"]


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
    given = list(counts) or [rows // size] * size
    if len(given) != size or sum(given) != rows or min(given) < 0:
        raise ValueError(f"split sizes {given} do not share {rows} rows among {size} ranks")
    parts: Sequence[torch.Tensor] = tensor.detach().split(given)
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
