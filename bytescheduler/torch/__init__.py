"""PyTorch: sums and means of gradients, the urgent ones first.

Change two lines of a training script::

    import bytescheduler.torch as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(optimizer, model=model)

Importing this starts nothing, and imports nothing of another framework.
"""

try:
    import torch  # noqa: F401  # before all that needs it
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "PyTorch is not installed: install it first, as its own page says, such as "
        "python -m pip install torch",
        name="torch",
    ) from error

from bytescheduler.torch._api.basics import (
    init,
    initialized,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from bytescheduler.torch._api.broadcast import (
    allgather_object,
    broadcast,
    broadcast_,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from bytescheduler.torch._api.push_pull import (
    Average,
    Sum,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    declare,
    poll,
    push_pull,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
    synchronize,
)
from bytescheduler.torch._optimizer.distributed import DistributedOptimizer
from bytescheduler.torch._sums.compression import Compression
from bytescheduler.torch.optimizer import CrossBarrier
from bytescheduler.torch.parallel import DistributedDataParallel, ddp_hook

__all__ = [
    "Average",
    "Compression",
    "CrossBarrier",
    "DistributedDataParallel",
    "DistributedOptimizer",
    "Sum",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ddp_hook",
    "declare",
    "init",
    "initialized",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]
