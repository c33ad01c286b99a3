"""Sums and means by Horovod's names, of one tensor or of several."""

from typing import Any, List, Optional, Sequence

import torch

from bytescheduler._session.rounds import MAX, MIN, PRODUCT, SUM
from bytescheduler.errors import UsageError
from bytescheduler.torch._api.push_pull import (
    Max,
    Min,
    Product,
    Summable,
    averages,
    push_pull,
    synchronize,
    tensor_of,
)
from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.compression import Chosen, Compression, chosen, scaled
from bytescheduler.torch._sums.tensor_sums import Call

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
]

_Tensors = Sequence[torch.Tensor]
# Operations that are no sum, as the engine numbers them.
_REDUCTIONS = {Min: MIN, Max: MAX, Product: PRODUCT}


class _Way:
    """The way of an allreduce, by the arguments that all calls here have.

    Parameters
    ----------
    average, op
        As of `averages`; or `op` is Min, Max or Product.
    prescale_factor, postscale_factor : float
        Each tensor is multiplied before and after its way.
    compression : Compressor or str
        The form in which it travels.
    """

    def __init__(
        self,
        average: Optional[bool],
        op: Optional[str],
        prescale_factor: float,
        postscale_factor: float,
        compression: Chosen = Compression.none,
    ) -> None:
        self.op = SUM if op is None else _REDUCTIONS.get(op, SUM)
        self.averages = self.op == SUM and averages(op, average)
        self.scales = prescale_factor != 1 or postscale_factor != 1
        if self.op != SUM and (average is not None or self.scales):
            raise UsageError(
                f"op={op!r} beside average, prescale_factor or postscale_factor: these are for "
                "sums and means; leave them out",
                5,
            )
        if self.op != SUM and chosen(compression) is not Compression.none:
            raise UsageError(f"op={op!r} with compression: only sums travel so; leave it out", 5)
        self.compression = scaled(chosen(compression), prescale_factor, postscale_factor)

    def check(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that can go this way."""
        if self.op != SUM and tensor.requires_grad and torch.is_grad_enabled():
            raise UsageError(
                "allreduce: Min, Max and Product have no gradient; hand over tensor.detach()", 5
            )
        if self.scales and not (tensor.is_floating_point() or tensor.is_complex()):
            raise UsageError(
                f"allreduce: prescale_factor and postscale_factor scale floats, got {tensor.dtype}"
                "; hand over tensor.float(), or leave them out",
                5,
            )
        return tensor

    def whole(self, tensor: torch.Tensor, name: Optional[str]) -> torch.Tensor:
        """Return the result.  Blocks."""
        if self.op != SUM:
            return synchronize(self.start(tensor, name))
        return push_pull(self.check(tensor), self.averages, name, compression=self.compression)

    def start(self, tensor: torch.Tensor, name: Optional[str], into: bool = False) -> int:
        """Return a handle; the result overwrites `tensor` if wanted."""
        if into and not isinstance(tensor, torch.Tensor):
            raise UsageError(f"allreduce in place: want a tensor, got {type(tensor).__name__}", 5)
        call = Call(self.averages, name, compression=self.compression, op=self.op)
        sums = current().get().sums
        return sums.start(self.check(tensor), call, into=tensor if into else None)

    def start_all(self, tensors: _Tensors, name: Optional[str], into: bool = False) -> int:
        """Return one handle for all."""
        _check_list(tensors)
        numbers = [
            self.start(tensor, None if name is None else f"{name} {place}", into)
            for place, tensor in enumerate(tensors)
        ]
        return current().get().sums.together(numbers)


def _check_list(tensors: Any) -> None:  # noqa: ANN401
    is_list = isinstance(tensors, (list, tuple))
    if not is_list or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise UsageError(
            f"grouped_allreduce: want a list of tensors, got {type(tensors).__name__}", 5
        )


def allreduce(
    tensor: Summable,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Chosen = Compression.none,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Do as `push_pull`, by Horovod's name for it.

    Parameters
    ----------
    tensor, average, name, compression
        As of `push_pull`.
    op : str, optional
        Average, Sum, Min, Max, or Product.
    prescale_factor, postscale_factor : float
        The tensor is multiplied by the first before it travels, the result by the second.

    Raises
    ------
    UsageError
        A whole number is to be scaled, or `op` contradicts `average`.  Min, Max and Product have no
        gradient, no scale and no compression.
    """
    way = _Way(average, op, prescale_factor, postscale_factor, compression)
    return way.whole(tensor_of(tensor, "allreduce"), name)


def allreduce_async(
    tensor: Summable,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin `allreduce`, and return a handle for `poll` and `synchronize`."""
    way = _Way(average, op, prescale_factor, postscale_factor)
    return way.start(tensor_of(tensor, "allreduce_async"), name)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Do as `allreduce`, and overwrite `tensor` with the result."""
    return synchronize(
        allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor)
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Do as `allreduce_async`; `synchronize` overwrites `tensor` with the result."""
    return _Way(average, op, prescale_factor, postscale_factor).start(tensor, name, into=True)


def grouped_allreduce(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Chosen = Compression.none,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """Do as `allreduce` for each of a list of tensors, side by side.

    Raises
    ------
    UsageError
        `tensors` is no list of tensors.
    """
    way = _Way(average, op, prescale_factor, postscale_factor, compression)
    _check_list(tensors)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        names = [None if name is None else f"{name} {place}" for place in range(len(tensors))]
        return [way.whole(tensor, its_name) for tensor, its_name in zip(tensors, names)]
    results: Any = synchronize(way.start_all(tensors, name))
    return list(results)


def grouped_allreduce_async(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin `grouped_allreduce`, and return one handle; `synchronize` returns the list."""
    return _Way(average, op, prescale_factor, postscale_factor).start_all(tensors, name)


def grouped_allreduce_(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """Do as `grouped_allreduce`, and overwrite the tensors with the results."""
    way = _Way(average, op, prescale_factor, postscale_factor)
    results: Any = synchronize(way.start_all(tensors, name, into=True))
    return list(results)


def grouped_allreduce_async_(
    tensors: _Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Do as `grouped_allreduce_async`; `synchronize` overwrites the tensors too."""
    way = _Way(average, op, prescale_factor, postscale_factor)
    return way.start_all(tensors, name, into=True)
