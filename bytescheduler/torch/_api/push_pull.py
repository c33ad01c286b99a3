"""Sums and means of single tensors over all workers."""

from typing import Any, Optional, Union

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.compression import Chosen, Compression, chosen
from bytescheduler.torch._sums.tensor_sums import Call

__all__ = [
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "Summable",
    "averages",
    "barrier",
    "byteps_declare_tensor",
    "declare",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
    "synchronize",
    "tensor_of",
]

# A number travels as a tensor of it.
Summable = Union[torch.Tensor, complex]

Average = "average"
Sum = "sum"
Min, Max, Product = "min", "max", "product"


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


def tensor_of(value: Summable, call: str) -> torch.Tensor:
    """Return the tensor that a number stands for.

    Raises
    ------
    UsageError
        It is neither a tensor nor a number.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (int, float, complex)):
        return torch.tensor(value)
    raise UsageError(f"{call}: want a tensor or a number, got {type(value).__name__}", 5)


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
    tensor: Summable,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Chosen = Compression.none,
) -> torch.Tensor:
    """Return the mean, or the sum, of every worker's `tensor`.  Blocks.

    The result has a gradient: the push-pull of its gradient.

    Parameters
    ----------
    tensor : Tensor or number
        The same dtype and size on every worker.
    average : bool
        Whether to divide the sum by the number of workers.
    name : str, optional
        Without names the calls must come in the same order on all workers.
    priority : int
        Larger goes first.
    compression : Compressor or str
        The form in which it travels.
    """
    tensor = tensor_of(tensor, "push_pull")
    call = Call(average, name, priority, chosen(compression))
    if tensor.requires_grad and torch.is_grad_enabled():
        return _PushPull.apply(tensor, call)
    sums = current().get().sums
    return sums.finish(sums.start(tensor, call))


def push_pull_async(
    tensor: Summable,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Chosen = Compression.none,
) -> int:
    """Begin `push_pull`, and return a handle for `poll` and `synchronize`.

    `tensor` must not change until `synchronize` has returned.
    """
    call = Call(average, name, priority, chosen(compression))
    return current().get().sums.start(tensor_of(tensor, "push_pull_async"), call)


def push_pull_async_inplace(
    tensor: torch.Tensor,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Chosen = Compression.none,
) -> int:
    """Do as `push_pull_async`; `synchronize` overwrites `tensor` with the result."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"in place: want a tensor, got {type(tensor).__name__}", 5)
    call = Call(average, name, priority, chosen(compression))
    return current().get().sums.start(tensor, call, into=tensor)


def push_pull_inplace(
    tensor: torch.Tensor,
    average: bool = True,
    name: Optional[str] = None,
    priority: int = 0,
    compression: Chosen = Compression.none,
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


def byteps_declare_tensor(name: str, **params: object) -> None:
    """Do as `declare`, by BytePS's name for it.

    Raises
    ------
    UsageError
        There are parameters of a compressor of BytePS.
    """
    if params:
        raise UsageError(
            f"byteps_declare_tensor of {name!r}: {', '.join(sorted(params))}: no such compressor; "
            "leave them out, and pass compression=Compression.fp16 or .two_bit() to the optimizer",
            5,
        )
    declare(name)


def barrier() -> None:
    """Return when every worker has called it."""
    carrier = current().get().carrier
    if carrier is not None:
        carrier.barrier()
