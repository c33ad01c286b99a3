"""PyTorch: sums and means of gradients, the urgent ones first.

Change two lines of a training script::

    import bytescheduler.torch as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(optimizer, model=model)

Importing this starts nothing, and imports nothing of another framework.
"""

from typing import TYPE_CHECKING

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

from bytescheduler.torch._api.allreduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from bytescheduler.torch._api.basics import (
    cross_rank,
    cross_size,
    init,
    initialized,
    is_homogeneous,
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
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from bytescheduler.torch._api.builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
    start_timeline,
    stop_timeline,
)
from bytescheduler.torch._api.missing import refusal
from bytescheduler.torch._api.push_pull import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    barrier,
    byteps_declare_tensor,
    declare,
    poll,
    push_pull,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
    synchronize,
)
from bytescheduler.torch._api.sync_batch_norm import SyncBatchNorm
from bytescheduler.torch._backend import add_backend
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
    "Max",
    "Min",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "byteps_declare_tensor",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "ddp_hook",
    "declare",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "initialized",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


add_backend()

if not TYPE_CHECKING:  # type checkers find a wrong name without it
    __getattr__ = refusal(__name__)
