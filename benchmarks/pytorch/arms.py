"""The arms of the replay with PyTorch: stock DDP over Gloo, and ours."""

import tempfile
from typing import Any, Dict, List, NamedTuple, Optional

from benchmarks.lab import lab_job, ranked
from benchmarks.pytorch import mpirun
from bytescheduler._advise.shape import Shape
from bytescheduler._launch.launcher import FIXED

DDP_MB = 25.0  # stock DDP's bucket, which is divided by the model's scale
GLOO = {"GLOO_SOCKET_IFNAME": "eth0"}


class Arm(NamedTuple):
    """One way to train."""

    kind: str  # a way of ways.py
    # apart, together (on the workers' hosts), direct (in the workers), or none; mpirun: as direct,
    # under Open MPI's mpirun
    servers: str = ""
    bucket_mb: float = DDP_MB  # before it is divided

    @property
    def is_stock(self) -> bool:
        """See `ranked.Arm`."""
        return self.kind == "ddp"


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
    return ranked.best_stock(ARMS, times)


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
    hosts = ranked.shape_of(of, shape)
    if of.servers == "mpirun":
        return _run_by_mpirun(arm, worker, limit_s, hosts, watch)
    roles = ranked.roles_of(of, worker, hosts, lambda _: GLOO)
    return lab_job.run_roles(arm, roles, ranked.KEEPS_MEMORY, limit_s, hosts, None, watch)


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
        results = lab_job.run_roles(arm, roles, ranked.KEEPS_MEMORY, limit_s, shape)
        if watch is not None:
            watch.end()
        return results
