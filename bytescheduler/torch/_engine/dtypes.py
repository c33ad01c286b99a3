"""PyTorch's dtypes as the engine numbers them, and the memory of a tensor."""

from typing import Tuple

import torch

from bytescheduler.errors import UsageError

__all__ = [
    "BYTES",
    "address_of",
    "can_sum",
    "check_summable",
    "code_of",
    "is_floating",
    "size_of",
]

_CODES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.uint8: 3,
    torch.int32: 4,
    torch.int8: 5,
    torch.int64: 6,
    torch.bfloat16: 12,
}
# A complex number travels as two real ones.
_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
# The code of plain bytes.
BYTES = _CODES[torch.uint8]


def can_sum(dtype: torch.dtype) -> bool:
    """Return whether servers sum elements of this dtype as they are."""
    return dtype in _CODES


def check_summable(tensor: torch.Tensor, name: str) -> None:
    """Raise UsageError, with `name`, if the servers cannot sum such a tensor."""
    if tensor.layout != torch.strided:
        raise UsageError(
            f"{name}: it is sparse ({tensor.layout}); hand over tensor.to_dense(), or for a layer "
            "such as Embedding leave sparse=True out",
            5,
        )
    if _PARTS.get(tensor.dtype, tensor.dtype) not in _CODES:
        summable = ", ".join(str(dtype).replace("torch.", "") for dtype in _CODES)
        raise UsageError(
            f"{name}: servers cannot sum {tensor.dtype}; convert it to one of {summable}", 5
        )


def code_of(dtype: torch.dtype) -> int:
    """Return the engine's number of a dtype that `check_summable` accepts."""
    return _CODES[_PARTS.get(dtype, dtype)]


def is_floating(dtype: torch.dtype) -> bool:
    """Return whether elements are floats, or pairs of them."""
    return bool(dtype.is_floating_point or dtype.is_complex)


def size_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a dense tensor."""
    return int(tensor.numel() * tensor.element_size())


def address_of(tensor: torch.Tensor) -> Tuple[int, int]:
    """Return where a dense tensor lies, and its bytes."""
    return tensor.data_ptr(), size_of(tensor)
