"""The arms of the replay with PyTorch: stock DDP over Gloo, and ours."""

import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from benchmarks.lab import lab_job, local_job
from benchmarks.pytorch import mpirun
from bytescheduler._advise.models import Step
from bytescheduler._advise.shape import Shape
from bytescheduler._launch.launcher import FIXED

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

    kind: str  # a way of ways.py
    # apart, together (on the workers' hosts), direct (in the workers), or none; mpirun: as direct,
    # under Open MPI's mpirun
    servers: str = ""
    bucket_mb: float = DDP_MB  # before it is divided


ARMS: Dict[str, Arm] = {
    "alone": Arm("alone"),  # no sums at all: what a step takes by itself
    "ddp": Arm("ddp"),
    # The sweep around it.
    "ddp-6": Arm("ddp", bucket_mb=DDP_MB / 4),
    "ddp-12": Arm("ddp", bucket_mb=DDP_MB / 2),
    "ddp-50": Arm("ddp", bucket_mb=DDP_MB * 2),
    "ddp-100": Arm("ddp", bucket_mb=DDP_MB * 4),
    "hook": Arm("hook", "apart", DDP_MB / 4),
    "barrier": Arm("barrier", "apart"),
    "ours": Arm("crossing", "apart"),
    "ours-together": Arm("crossing", "together"),
    "ours-direct": Arm("crossing", "direct"),
    "mpi": Arm("mpi", "mpirun"),  # Horovod over MPI
    "mpi-grants": Arm("grants", "mpirun"),
}
USUAL = "ddp-6,ddp-12,ddp,ddp-50,ddp-100,hook,barrier,ours,ours-together,ours-direct"


def best_ddp(times: Dict[str, Optional[float]]) -> Optional[float]:
    """Return the time of the bucket that suits best, if any was tried."""
    tried = [time for arm, time in times.items() if ARMS[arm].kind == "ddp" and time is not None]
    return min(tried) if tried else None


def of_rank(rank: int, workers: int) -> Dict[str, str]:
    """Return what torchrun would tell a worker of its place."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "MASTER_ADDR": lab_job.place(1).address,
        "MASTER_PORT": str(GLOO_PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
    }


def roles_of(arm: Arm, worker: List[str], shape: Shape) -> List[lab_job.Role]:
    """Return the processes of a job, each on its host of a lab of that shape."""
    roles: List[lab_job.Role] = []
    if arm.servers in ("apart", "together"):
        roles += lab_job.node_roles(local_job.NODES["ours"], shape)
    unset = [] if roles else [word for name in FIXED for word in ("-u", name)]
    for rank, host in enumerate(shape.worker_hosts):
        told = [f"{name}={value}" for name, value in of_rank(rank, shape.workers).items()]
        roles.append(("worker", host, ["env", *unset, *told, *worker]))
    return roles


def run(
    arm: str,
    worker: List[str],
    limit_s: float,
    shape: Shape,
    watch: Optional[lab_job.Watch] = None,
) -> List[Any]:
    """Run a job of an arm in the lab; return what its workers reported.

    `watch` is as `lab_job.run` has it.
    """
    of = ARMS[arm]
    hosts = shape if of.servers == "direct" else shape_of(of, shape)
    if of.servers == "mpirun":
        return _run_by_mpirun(arm, worker, limit_s, hosts, watch)
    roles = roles_of(of, worker, hosts)
    return lab_job.run_roles(arm, roles, KEEPS_MEMORY, limit_s, hosts, None, watch)


def _run_by_mpirun(
    arm: str, worker: List[str], limit_s: float, shape: Shape, watch: Optional[lab_job.Watch]
) -> List[Any]:
    """Run as `run` does; the worker that is first to report counts for all."""
    # Those of the first host would go to all.
    unset = [word for name in (*FIXED, "DMLC_NODE_HOST") for word in ("-u", name)]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        command = mpirun.command_of(folder, shape)
        meeting = [f"DMLC_PS_ROOT_URI={lab_job.place(shape.worker_hosts[0]).address}"]
        # Input of mpirun reaches a single worker, so none waits for a line.
        unwatched = [word for word in worker if word != "--watched"]
        words = ["env", *unset, *command, "env", *meeting, *unwatched]
        roles = [("worker", shape.worker_hosts[0], words)]
        if watch is not None:
            watch.begin()
        results = lab_job.run_roles(arm, roles, KEEPS_MEMORY, limit_s, shape)
        if watch is not None:
            watch.end()
        return results


def shape_of(arm: Arm, shape: Shape) -> Shape:
    """Return the workers and servers of an arm, with the workers of `shape`."""
    if arm.servers in ("together", "direct", "mpirun"):  # a server beside each worker, or in it
        return shape.direct
    return shape


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
