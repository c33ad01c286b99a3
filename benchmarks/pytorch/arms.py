"""The arms of the replay with PyTorch: stock DDP over Gloo, and ours."""

from typing import Any, Dict, List, NamedTuple, Sequence

from benchmarks.lab import lab_job
from bytescheduler._advise.models import Step
from bytescheduler._advise.shape import Shape

DDP_MB = 25.0  # stock DDP's bucket, which is divided by the model's scale
GLOO_PORT = 9092
# Memory that a step frees serves the next one: the kernel clears no new pages, for any arm.
KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class Arm(NamedTuple):
    """One way to train."""

    kind: str
    bucket_mb: float = DDP_MB  # before it is divided


ARMS: Dict[str, Arm] = {
    "ddp": Arm("ddp"),
    # The sweep around it.
    "ddp-6": Arm("ddp", DDP_MB / 4),
    "ddp-12": Arm("ddp", DDP_MB / 2),
    "ddp-50": Arm("ddp", DDP_MB * 2),
    "ddp-100": Arm("ddp", DDP_MB * 4),
}
USUAL = "ddp-6,ddp-12,ddp,ddp-50,ddp-100"


def of_rank(rank: int, workers: int) -> Dict[str, str]:
    """Return what torchrun would tell a worker of its place."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "MASTER_ADDR": lab_job.place(1).address,
        "MASTER_PORT": str(GLOO_PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
    }


def run(arm: str, worker: List[str], limit_s: float, shape: Shape) -> List[Any]:
    """Run a job of an arm in the lab; return what its workers reported."""
    places = {host: of_rank(rank, shape.workers) for rank, host in enumerate(shape.worker_hosts)}
    roles = lab_job.worker_roles(worker, shape)
    return lab_job.run_roles(arm, roles, KEEPS_MEMORY, limit_s, shape, places)


def barrier_s(steps: Sequence[Step], bytes_per_s: float) -> float:
    """Return the shortest time of a step that has all sums before the next one begins.

    The link is never idle while a gradient waits, so the order in which they cross does not matter.
    """
    now = sum(step.forward_s for step in steps)
    crossed = now
    for step in reversed(steps):
        now += step.backward_s
        crossed = max(now, crossed) + step.size_bytes / bytes_per_s
    return crossed
