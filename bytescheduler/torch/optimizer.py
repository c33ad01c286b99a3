"""ByteScheduler's documented way to wrap an optimizer for PyTorch.

Change one line of a script that Horovod trains::

    import bytescheduler.torch.optimizer as bps
    bps.init()
    optimizer = bps.DistributedOptimizer(model, optimizer, model.named_parameters())
"""

from typing import TYPE_CHECKING, Any, Optional, Type

import torch

from bytescheduler.torch._api.basics import init, local_rank, local_size, rank, shutdown, size
from bytescheduler.torch._api.broadcast import broadcast_optimizer_state, broadcast_parameters
from bytescheduler.torch._api.missing import refusal
from bytescheduler.torch._api.push_pull import push_pull
from bytescheduler.torch._optimizer import distributed
from bytescheduler.torch._optimizer.options import Named
from bytescheduler.torch._sums.choice import CompressionParams
from bytescheduler.torch._sums.compression import Compression, Compressor

__all__ = [
    "Compression",
    "CrossBarrier",
    "DistributedOptimizer",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "init",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "shutdown",
    "size",
]


def DistributedOptimizer(  # noqa: N802 - its documented name
    model: torch.nn.Module,
    optimizer: Any,  # noqa: ANN401
    named_parameters: Optional[Named] = None,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    num_steps: Optional[int] = None,
    compression_params: CompressionParams = None,
) -> distributed.DistributedOptimizer:
    """Return the optimizer with means of gradients over all workers; forward crosses the barrier.

    Parameters
    ----------
    model : Module
        Gets worker 0's parameters and buffers; its modules wait for their weights.
    optimizer : Optimizer
        Any of PyTorch's.
    named_parameters : iterable of pairs, optional
        As of `bytescheduler.torch.DistributedOptimizer`.
    compression : Compressor
        The form in which gradients travel.
    backward_passes_per_step : int
        How often backward accumulates before gradients are sent.
    num_steps : int, optional
        Accepted and not needed: nothing polls, and the end of training is found without it.
    compression_params : dict, optional
        As of `bytescheduler.torch.DistributedOptimizer`.
    """
    return distributed.DistributedOptimizer(
        optimizer,
        named_parameters,
        compression,
        backward_passes_per_step,
        crossing="auto",
        model=model,
        compression_params=compression_params,
    )


def CrossBarrier(  # noqa: N802 - BytePS's name
    model: torch.nn.Module,
    optimizer: Any,  # noqa: ANN401
    named_parameters: Optional[Named] = None,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    num_steps: Optional[int] = None,
    compression_params: CompressionParams = None,
) -> distributed.DistributedOptimizer:
    """Return the optimizer by BytePS's name; an optimizer that cannot cross is an error.

    Parameters
    ----------
    model, optimizer, named_parameters, compression, backward_passes_per_step, num_steps, \
    compression_params
        As of `DistributedOptimizer`.
    """
    return distributed.DistributedOptimizer(
        optimizer,
        named_parameters,
        compression,
        backward_passes_per_step,
        crossing=True,
        model=model,
        compression_params=compression_params,
    )


if not TYPE_CHECKING:  # type checkers find a wrong name without it
    __getattr__ = refusal(__name__)
