"""Sums and means of single tensors over all workers."""

from typing import Any, Optional, Type

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.compression import Compression, Compressor
from bytescheduler.torch._sums.tensor_sums import Call

__all__ = [
    "Average",
    "Sum",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "averages",
    "barrier",
    "declare",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
    "synchronize",
]

Average = "average"
Sum = "sum"


def averages(op: Optional[str], average: Optional[bool] = None) -> bool:
    """Return whether a mean is wanted, rather than a sum.

    Raises
    ------
    UsageError
        `op` is another one, or contradicts `average`.
    """
    if op not in (None, Average, Sum):
        raise UsageError(f"op={op!r}: want Average or Sum", 5)
    if op is not None and average is not None and average != (op == Average):
        raise UsageError(f"op={op!r} and average={average} contradict each other: give one", 5)
    return average if average is not None else op != Sum


class _PushPull(torch.autograd.Function):  # type: ignore[misc]  # PyTorch's types are not read
    """A push-pull whose gradient is a push-pull of the gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, call: Call) -> torch.Tensor:  # noqa: ANN401
        """Return the sum or mean."""
        ctx.call = call
        sums = current().get().sums
        return sums.finish(sums.start(tensor, call))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # noqa: ANN401
        """Return the sum or mean of the gradients."""
        call = ctx.call
        name = None if call.name is None else f"{call.name} (gradient)"
        return _PushPull.apply(gradient, call._replace(name=name)), None


def push_pull(
    tensor: torch.Tensor,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Type[Compressor] = Compression.none,
) -> torch.Tensor:
    """Return the mean, or the sum, of every worker's `tensor`.  Blocks.

    The result has a gradient: the push-pull of its gradient.

    Parameters
    ----------
    tensor : Tensor
        The same dtype and size on every worker.
    average : bool
        Whether to divide the sum by the number of workers.
    name : str, optional
        Without names the calls must come in the same order on all workers.
    priority : int
        Larger goes first.
    compression : Compressor
        The form in which it travels.
    """
    call = Call(average, name, priority, compression)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _PushPull.apply(tensor, call)
    sums = current().get().sums
    return sums.finish(sums.start(tensor, call))


def push_pull_async(
    tensor: torch.Tensor,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Type[Compressor] = Compression.none,
) -> int:
    """Begin `push_pull`, and return a handle for `poll` and `synchronize`.

    `tensor` must not change until `synchronize` has returned.
    """
    return current().get().sums.start(tensor, Call(average, name, priority, compression))


def push_pull_async_inplace(
    tensor: torch.Tensor,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Type[Compressor] = Compression.none,
) -> int:
    """Do as `push_pull_async`; `synchronize` overwrites `tensor` with the result."""
    call = Call(average, name, priority, compression)
    return current().get().sums.start(tensor, call, into=tensor)


def push_pull_inplace(
    tensor: torch.Tensor,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Type[Compressor] = Compression.none,
) -> torch.Tensor:
    """Do as `push_pull`, and overwrite `tensor` with the result."""
    return synchronize(push_pull_async_inplace(tensor, average, name, priority, compression))


def poll(handle: int) -> bool:
    """Return whether `synchronize` would return at once; never blocks."""
    return current().get().sums.over(handle)


def synchronize(handle: int) -> torch.Tensor:
    """Return the result that belongs to a handle, once.  Blocks.

    Raises
    ------
    UsageError
        There is no such handle, or it was synchronised already.
    PeerLost, Timeout
        A worker or server was lost.
    """
    return current().get().sums.finish(handle)


def declare(name: str) -> None:
    """Reserve a name for push-pulls to come."""
    current().get().sums.declare(name)


def barrier() -> None:
    """Return when every worker has called it."""
    carrier = current().get().carrier
    if carrier is not None:
        carrier.barrier()


# -- by Horovod's names ----------------------------------------------------------------------------


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[str] = None,
) -> torch.Tensor:
    """Do as `push_pull`, by Horovod's name for it."""
    return push_pull(tensor, averages(op, average), name, compression=compression)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
) -> int:
    """Do as `push_pull_async`, by Horovod's name for it."""
    return push_pull_async(tensor, averages(op, average), name)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
) -> torch.Tensor:
    """Do as `push_pull_inplace`, by Horovod's name for it."""
    return push_pull_inplace(tensor, averages(op, average), name)


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[str] = None,
) -> int:
    """Do as `push_pull_async_inplace`, by Horovod's name for it."""
    return push_pull_async_inplace(tensor, averages(op, average), name)
