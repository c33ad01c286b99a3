"""Memory of tensors as exchanges read and write it: flat and dense."""

import bisect
from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch

from bytescheduler.torch._backend.labels import dtype_text

__all__ = [
    "DEVICES",
    "Extent",
    "Extents",
    "Landing",
    "check_alike",
    "check_tensors",
    "extent_of",
    "is_in_place",
    "landing",
    "sent",
]

# Kinds of devices whose tensors travel.
DEVICES = ("cpu", "cuda")
# Address of the first byte, and behind the last.
Extent = Tuple[int, int]


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
    """Raise ValueError if a tensor is not dense, or on a device that no exchange reaches."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise ValueError(
                f"a tensor is sparse ({tensor.layout}); hand over tensor.to_dense(), or for a "
                "layer such as Embedding leave sparse=True out"
            )
        if tensor.device.type not in DEVICES:
            raise ValueError(
                f"a tensor is on {tensor.device}, and the backend bytescheduler takes tensors of "
                "the CPU and of NVIDIA's GPUs; move it there first, tensor.cpu()"
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


def is_in_place(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Return whether each element of two tensors of a size lies, and reads, alike in both."""
    if target.data_ptr() != source.data_ptr():
        return False
    if _is_plain(target) and _is_plain(source):
        return True
    bits = (target.is_conj() == source.is_conj(), target.is_neg() == source.is_neg())
    return target.stride() == source.stride() and all(bits)


def sent(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor, dense and flat: its own memory if possible."""
    flat = tensor.detach()
    if not _is_plain(flat):
        flat = flat.resolve_conj().resolve_neg().contiguous()
    return flat.view(-1)


def landing(tensor: torch.Tensor, *, apart: bool) -> Landing:
    """Return the memory that receives values of a tensor; the tensor's own unless `apart`."""
    plain = tensor.detach()
    if _is_plain(plain) and not apart:
        return Landing(plain.view(-1), None)
    return Landing(torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device), plain)


def extent_of(tensor: torch.Tensor) -> Extent:
    """Return where the elements of a tensor lie; gaps between them count."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


class Extents:
    """Extents that are apart."""

    def __init__(self) -> None:
        self._extents: List[Extent] = []

    def add(self, extent: Extent) -> bool:
        """Add an extent, unless it overlaps another; return whether it was added."""
        at = bisect.bisect(self._extents, extent)
        before, behind = self._extents[max(at - 1, 0) : at], self._extents[at : at + 1]
        if any(extent[0] < end and begin < extent[1] for begin, end in before + behind):
            return False
        self._extents.insert(at, extent)
        return True
