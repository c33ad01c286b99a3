"""The arms of the replay with PyTorch: DDP and FSDP2 over Gloo and over our backend, and ours."""

import tempfile
from typing import Any, Dict, List, NamedTuple, Optional

from benchmarks.lab import lab_job, ranked
from benchmarks.pytorch import mpirun
from bytescheduler._advise.shape import Shape
from bytescheduler._launch.launcher import FIXED

DDP_MB = 25.0  # stock DDP's bucket, which is divided by the model's scale
GLOO = {"GLOO_SOCKET_IFNAME": "eth0"}
OURS = "bytescheduler"  # our backend of torch.distributed


class Arm(NamedTuple):
    """One way to train."""

    kind: str  # a way of ways.py
    # apart, together (on the workers' hosts), direct (in the workers), or none; mpirun: as direct,
    # under Open MPI's mpirun
    servers: str = ""
    bucket_mb: float = DDP_MB  # before it is divided
    backend: str = "gloo"  # that torch.distributed uses
    is_halved: bool = False  # gradients travel as bfloat16
    reshards: bool = False  # FSDP2 frees weights after forward, and gathers them in backward again

    @property
    def is_stock(self) -> bool:
        """See `ranked.Arm`."""
        return self.kind == "ddp" and self.backend == "gloo" and not self.is_halved

    @property
    def is_rival(self) -> bool:
        """See `ranked.Arm`: DDP and FSDP2 over Gloo."""
        return self.kind in ("ddp", "fsdp") and self.backend == "gloo"

    @property
    def is_exact(self) -> bool:
        """True where two workers end with the weights of all other such arms, in whole tensors."""
        return not self.is_halved and self.kind != "fsdp"


def _over_ours(arm: Arm) -> Arm:
    """Return an arm of torch.distributed over our backend, which needs no servers apart."""
    return arm._replace(servers="direct", backend=OURS)


# Names end with -bf16 where gradients travel so, and with -backend over ours.
_DISTRIBUTED: Dict[str, Arm] = {
    "ddp-6": Arm("ddp", bucket_mb=DDP_MB / 4),
    "ddp": Arm("ddp"),
    "ddp-6-bf16": Arm("ddp", bucket_mb=DDP_MB / 4, is_halved=True),
    "ddp-bf16": Arm("ddp", is_halved=True),
    "fsdp": Arm("fsdp"),
    "fsdp-reshard": Arm("fsdp", reshards=True),
}


ARMS: Dict[str, Arm] = {
    "alone": Arm("alone"),  # no sums at all: what a step takes by itself
    "ddp": _DISTRIBUTED["ddp"],
    # The sweep around it.
    "ddp-6": _DISTRIBUTED["ddp-6"],
    "ddp-12": Arm("ddp", bucket_mb=DDP_MB / 2),
    "ddp-50": Arm("ddp", bucket_mb=DDP_MB * 2),
    "ddp-100": Arm("ddp", bucket_mb=DDP_MB * 4),
    "hook": Arm("hook", "apart", DDP_MB / 4),
    "barrier": Arm("barrier", "apart"),
    "ours": Arm("crossing", "apart"),
    "ours-together": Arm("crossing", "together"),
    "ours-direct": Arm("crossing", "direct"),
    "ours-bf16": Arm("crossing", "apart", is_halved=True),
    "ours-direct-bf16": Arm("crossing", "direct", is_halved=True),
    **_DISTRIBUTED,
    **{f"{name}-backend": _over_ours(arm) for name, arm in _DISTRIBUTED.items()},
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
