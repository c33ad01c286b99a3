"""Workers with ranks on the hosts of a lab, as launchers of PyTorch and TensorFlow start them."""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence

from benchmarks.lab import lab_job, local_job
from bytescheduler._advise.models import Step
from bytescheduler._advise.shape import Shape
from bytescheduler._launch.launcher import FIXED

PORT = 9092  # where the workers of a framework's own job meet
# Memory that a step frees serves the next one: the kernel clears no new pages, for any arm.
KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class Arm(Protocol):
    """One way to train."""

    @property
    def servers(self) -> str:
        """Where servers are: apart, together with workers, direct or mpirun (in them); or none."""

    @property
    def is_stock(self) -> bool:
        """True where the framework itself makes the sums, in a ring."""

    @property
    def is_rival(self) -> bool:
        """True where the framework trains without ours, in any form: tables divide it by ours."""


class Told(NamedTuple):
    """Tells a worker what to replay."""

    steps: List[Step]
    scale: int  # divides the parameters
    arm: str
    iterations: int
    watched: bool  # all workers begin together
    library: str  # the compiled layers, where a framework has any


def best_stock(arms: Mapping[str, Arm], times: Mapping[str, Optional[float]]) -> Optional[float]:
    """Return the time of the fastest arm of the framework itself, if any was tried."""
    tried = [time for arm, time in times.items() if arms[arm].is_stock and time is not None]
    return min(tried) if tried else None


def of_rank(rank: int, workers: int) -> Dict[str, str]:
    """Return what torchrun would tell a worker of its place."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "MASTER_ADDR": lab_job.place(1).address,
        "MASTER_PORT": str(PORT),
    }


def shape_of(arm: Arm, shape: Shape) -> Shape:
    """Return the workers and servers of an arm, with the workers of `shape`."""
    if arm.servers in ("together", "direct", "mpirun"):  # a server beside each worker, or in it
        return shape.direct
    return shape


def roles_of(
    arm: Arm, worker: List[str], shape: Shape, more: Callable[[int], Dict[str, str]]
) -> List[lab_job.Role]:
    """Return the processes of a job, each on its host of a lab of that shape.

    `more` returns further settings of a rank.
    """
    roles: List[lab_job.Role] = []
    if arm.servers in ("apart", "together"):
        roles += lab_job.node_roles(local_job.NODES["ours"], shape)
    unset = [] if roles else [word for name in FIXED for word in ("-u", name)]
    for rank, host in enumerate(shape.worker_hosts):
        settings = {**of_rank(rank, shape.workers), **more(rank)}
        told = [f"{name}={value}" for name, value in settings.items()]
        roles.append(("worker", host, ["env", *unset, *told, *worker]))
    return roles


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
