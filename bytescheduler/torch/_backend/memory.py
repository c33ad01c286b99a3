"""Memory of tensors as exchanges read and write it: flat and dense, of the CPU."""

from typing import List, NamedTuple, Optional, Sequence

import torch

from bytescheduler.torch._backend.labels import dtype_text

__all__ = ["Landing", "check_alike", "check_tensors", "landing", "sent"]


class Landing(NamedTuple):
    """Memory that receives.

    Parameters
    ----------
    memory : Tensor
        Dense and flat.
    target : Tensor, optional
        Gets a copy at the end; None: `memory` is the tensor's own.
    """

    memory: torch.Tensor
    target: Optional[torch.Tensor]

    def finish(self) -> None:
        """Let the tensor have its values."""
        if self.target is not None:
            self.target.copy_(self.memory.view(self.target.shape))


def check_tensors(tensors: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if a tensor is not dense, or not in the CPU's memory."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise ValueError(
                f"a tensor is sparse ({tensor.layout}); hand over tensor.to_dense(), or for a "
                "layer such as Embedding leave sparse=True out"
            )
        if not tensor.is_cpu:
            raise ValueError(
                f"a tensor is on {tensor.device}, and the backend bytescheduler takes tensors of "
                "the CPU; use the backend nccl, or bytescheduler.torch.DistributedOptimizer"
            )


def check_alike(tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
    """Raise ValueError if a tensor has another dtype."""
    odd: List[torch.Tensor] = [tensor for tensor in tensors if tensor.dtype != dtype]
    if odd:
        raise ValueError(
            f"one call has tensors of {dtype_text(dtype)} and {dtype_text(odd[0].dtype)}; give it "
            "one dtype"
        )


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the memory holds the values in their order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def sent(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor, dense and flat: its own memory if possible."""
    flat = tensor.detach()
    if not _is_plain(flat):
        flat = flat.resolve_conj().resolve_neg().contiguous()
    return flat.view(-1)


def landing(tensor: torch.Tensor) -> Landing:
    """Return the memory that receives values of a tensor; the tensor's own if possible."""
    plain = tensor.detach()
    if _is_plain(plain):
        return Landing(plain.view(-1), None)
    return Landing(torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device), plain)
