"""ReduceOp of c10d: on the engine where it has operation and dtype, else by PyTorch."""

from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.distributed import ReduceOp

from bytescheduler._session.rounds import MAX, MIN, PRODUCT, SUM
from bytescheduler.torch._backend.labels import dtype_text
from bytescheduler.torch._engine.dtypes import BYTES, can_sum, code_of, is_floating

__all__ = ["Reduction", "name_of", "reduction_of"]

_Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Row(NamedTuple):
    op: Optional[int]  # the engine's
    op_of_bool: Optional[int]  # the engine's on bytes that are 0 or 1
    combine: _Combine


_ROWS: Dict[str, _Row] = {
    "SUM": _Row(SUM, MAX, torch.add),
    "AVG": _Row(SUM, None, torch.add),
    "MIN": _Row(MIN, MIN, torch.minimum),
    "MAX": _Row(MAX, MAX, torch.maximum),
    "PRODUCT": _Row(PRODUCT, MIN, torch.mul),
    "BAND": _Row(None, MIN, torch.bitwise_and),
    "BOR": _Row(None, MAX, torch.bitwise_or),
    "BXOR": _Row(None, None, torch.bitwise_xor),
}


class Reduction(NamedTuple):
    """An operation on the contributions of all ranks to tensors of a dtype.

    Parameters
    ----------
    name : str
        Its name in ReduceOp.
    dtype : torch.dtype
        That of the contributions.
    """

    name: str
    dtype: torch.dtype

    @property
    def text(self) -> str:
        """The operation as labels have it."""
        return f"op {self.name}"

    @property
    def on_engine(self) -> Optional[Tuple[int, int]]:
        """The engine's numbers of dtype and operation; None: PyTorch reduces."""
        row = _ROWS[self.name]
        if self.dtype == torch.bool:
            return None if row.op_of_bool is None else (BYTES, row.op_of_bool)
        if row.op is None or not can_sum(self.dtype):
            return None
        return code_of(self.dtype), row.op

    def reduce(self, contributions: Sequence[torch.Tensor], result: torch.Tensor) -> None:
        """Reduce in the order of ranks, into `result`, which is no contribution."""
        result.copy_(contributions[0])
        for contribution in contributions[1:]:
            _ROWS[self.name].combine(result, contribution, out=result)  # type: ignore[call-arg]

    def finish(self, result: torch.Tensor, size: int) -> None:
        """Make the result of `size` contributions complete: a mean of their sum.

        That of integers is rounded towards zero, as NCCL does.
        """
        if self.name == "AVG":
            result.div_(size, rounding_mode=None if is_floating(self.dtype) else "trunc")


def name_of(operation: object) -> str:
    """Return the name of an operation of c10d; empty if the backend does not have it."""
    return next((name for name in _ROWS if operation == getattr(ReduceOp, name, None)), "")


def reduction_of(operation: object, dtype: torch.dtype) -> Reduction:
    """Return the operation of c10d on tensors of a dtype.

    Raises
    ------
    ValueError
        There is none.
    """
    name = name_of(operation)
    if not name:
        raise ValueError(
            f"{operation}: the backend bytescheduler knows {', '.join(_ROWS)}; multiply the tensor "
            "before a SUM where NCCL has PREMUL_SUM"
        )
    if name in ("BAND", "BOR", "BXOR") and is_floating(dtype):
        raise ValueError(f"ReduceOp.{name}: {dtype_text(dtype)} has no bits to combine; use SUM")
    if name == "AVG" and dtype == torch.bool:
        raise ValueError(
            f"ReduceOp.AVG: {dtype_text(dtype)} cannot hold a mean; use SUM and divide the result"
        )
    return Reduction(name, dtype)
