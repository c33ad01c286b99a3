"""The ways to train that arms stand for: what is called, which optimizer steps, how it ends."""

import contextlib
import importlib
import os
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.pytorch.arms import OURS, Arm

# Horovod adds up as much together (HOROVOD_FUSION_THRESHOLD).
_HOROVOD_SIZES = {"BYTESCHEDULER_PARTITION": 64 << 20, "BYTESCHEDULER_CREDIT": 128 << 20}
# The default of a job whose sums MPI makes.
_GRANTED_SIZES = {"BYTESCHEDULER_PARTITION": 8 << 20, "BYTESCHEDULER_CREDIT": 16 << 20}


class Way(NamedTuple):
    """A model that trains with other workers."""

    called: torch.nn.Module
    optimizer: Any  # torch's, or one that passes for it
    rank: int
    size: int


@contextlib.contextmanager
def _ddp(model: torch.nn.Module, optimizer: Any, arm: Arm, scale: int) -> "Iterator[Way]":  # noqa: ANN401
    join(arm)
    called = torch.nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=arm.bucket_mb / scale, gradient_as_bucket_view=True
    )
    if arm.is_halved:
        called.register_comm_hook(None, _halve)
    yield Way(called, optimizer, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


def join(arm: Arm) -> None:
    """Make the default group of torch.distributed over the backend of an arm."""
    if arm.backend == OURS:
        importlib.import_module("bytescheduler.torch")
    dist.init_process_group(arm.backend)


def _halve(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Send gradients as bfloat16, as `bf16_compress_hook` does where PyTorch allows its name."""
    return default_hooks._compress_hook(torch.bfloat16, dist.group.WORLD, bucket)


@contextlib.contextmanager
def _fsdp(model: torch.nn.Module, optimizer: Any, arm: Arm, _scale: int) -> "Iterator[Way]":  # noqa: ANN401
    """Shard each layer of a model of layers; the optimizer gets the shards."""
    join(arm)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh, reshard_after_forward=arm.reshards)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    yield Way(model, optimizer, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


@contextlib.contextmanager
def _hook(model: torch.nn.Module, optimizer: Any, arm: Arm, scale: int) -> "Iterator[Way]":  # noqa: ANN401
    import bytescheduler.torch as bps

    bps.init()
    with _ddp(model, optimizer, arm, scale) as way:
        way.called.register_comm_hook(None, bps.ddp_hook)
        yield way
    bps.shutdown()


@contextlib.contextmanager
def _alone(model: torch.nn.Module, optimizer: Any) -> "Iterator[Way]":  # noqa: ANN401
    yield Way(model, optimizer, 0, 1)


@contextlib.contextmanager
def _ours(
    model: torch.nn.Module,
    optimizer: Any,  # noqa: ANN401
    crossing: bool,
    compression: Optional[str] = None,
) -> "Iterator[Way]":
    import bytescheduler.torch as bps

    bps.init()
    wrapped = bps.DistributedOptimizer(
        optimizer, model=model, crossing=crossing, compression=compression
    )
    yield Way(model, wrapped, bps.rank(), bps.size())
    bps.shutdown()


def _by_mpi(sizes: Dict[str, int], crossing: bool) -> Any:  # noqa: ANN401
    """Return what begins a way whose sums MPI makes; sizes are divided as the model is."""

    def begin(model: torch.nn.Module, optimizer: Any, _arm: Arm, scale: int) -> Any:  # noqa: ANN401
        settings = {name: str(size // scale) for name, size in sizes.items()}
        os.environ.update({"BYTESCHEDULER_COMM": "mpi", **settings})
        if not crossing:
            os.environ["BYTESCHEDULER_SCHEDULING"] = "0"
        return _ours(model, optimizer, crossing)

    return begin


WAYS: Dict[str, Callable[[torch.nn.Module, Any, Arm, int], Any]] = {
    "alone": lambda model, optimizer, _arm, _scale: _alone(model, optimizer),
    "ddp": _ddp,
    "hook": _hook,
    "barrier": lambda model, optimizer, _arm, _scale: _ours(model, optimizer, crossing=False),
    "mpi": _by_mpi(_HOROVOD_SIZES, crossing=False),
    "grants": _by_mpi(_GRANTED_SIZES, crossing=True),
    "crossing": lambda model, optimizer, arm, _scale: _ours(
        model, optimizer, crossing=True, compression="bf16" if arm.is_halved else None
    ),
    "fsdp": _fsdp,
}


def begin(model: torch.nn.Module, optimizer: Any, arm: Arm, scale: int) -> Any:  # noqa: ANN401
    """Join the other workers; the job is left at the end of a ``with`` block.

    Parameters
    ----------
    scale
        What the parameters of the model are divided by, and so the buckets of DDP.
    """
    return WAYS[arm.kind](model, optimizer, arm, scale)
