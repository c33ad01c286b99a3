"""The ways to train that arms stand for: what is called, which optimizer steps, how it ends."""

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, NamedTuple

import torch
import torch.distributed as dist

from benchmarks.pytorch.arms import Arm

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
    dist.init_process_group("gloo")
    called = torch.nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=arm.bucket_mb / scale, gradient_as_bucket_view=True
    )
    yield Way(called, optimizer, dist.get_rank(), dist.get_world_size())
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
def _ours(model: torch.nn.Module, optimizer: Any, crossing: bool) -> "Iterator[Way]":  # noqa: ANN401
    import bytescheduler.torch as bps

    bps.init()
    wrapped = bps.DistributedOptimizer(optimizer, model=model, crossing=crossing)
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
    "crossing": lambda model, optimizer, _arm, _scale: _ours(model, optimizer, crossing=True),
}


def begin(model: torch.nn.Module, optimizer: Any, arm: Arm, scale: int) -> Any:  # noqa: ANN401
    """Join the other workers; the job is left at the end of a ``with`` block.

    Parameters
    ----------
    scale
        What the parameters of the model are divided by, and so the buckets of DDP.
    """
    return WAYS[arm.kind](model, optimizer, arm, scale)
