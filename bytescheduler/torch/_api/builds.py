"""Questions of Horovod's scripts: which libraries carry tensors, and the timeline."""

import torch

from bytescheduler._process.say import plain, say
from bytescheduler._settings import Settings
from bytescheduler.errors import UsageError

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
    "start_timeline",
    "stop_timeline",
]


def _no() -> bool:
    """Return False: servers of our own carry tensors, and no library of that name."""
    return False


mpi_enabled = mpi_built = mpi_threads_supported = _no
gloo_enabled = gloo_built = nccl_built = ddl_built = ccl_built = rocm_built = _no


def cuda_built() -> bool:
    """Return whether this PyTorch has tensors on NVIDIA's GPUs, which travel."""
    return torch.version.cuda is not None


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Say where the timeline is: it begins with the job, by BYTESCHEDULER_TIMELINE.

    Raises
    ------
    UsageError
        That is not set.
    """
    written = Settings.read().timeline
    if not written:
        raise UsageError(
            "start_timeline: a timeline begins with the job; set "
            f"BYTESCHEDULER_TIMELINE={plain(str(file_path))} before the start, on all nodes",
            5,
        )
    say(
        f"bytescheduler: start_timeline: the timeline is in {plain(written)}, one file a process, "
        "by BYTESCHEDULER_TIMELINE"
    )


def stop_timeline() -> None:
    """Do nothing: a timeline ends with the job."""
