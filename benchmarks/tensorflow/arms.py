"""The arms of the replay with TensorFlow: stock MultiWorkerMirroredStrategy, and ours."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from benchmarks.lab import lab_job, ranked
from bytescheduler._advise.shape import Shape

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors alone


class Arm(NamedTuple):
    """One way to train."""

    kind: str  # a way of ways.py
    servers: str = ""  # see ranked.Arm
    pack_mb: float = 0  # a pack of gradients, before it is divided; 0: all in one

    @property
    def is_stock(self) -> bool:
        """See `ranked.Arm`."""
        return self.kind.startswith("mwms")

    @property
    def is_rival(self) -> bool:
        """See `ranked.Arm`."""
        return self.is_stock


ARMS: Dict[str, Arm] = {
    "alone": Arm("alone"),  # no sums at all: what a step takes by itself
    "mwms-ring": Arm("mwms-ring"),
    "mwms-auto": Arm("mwms-auto"),
    # The sweep around it: stock sums begin before backward has ended.
    "mwms-ring-6": Arm("mwms-ring", pack_mb=6.25),
    "mwms-ring-25": Arm("mwms-ring", pack_mb=25),
    "barrier": Arm("barrier", "apart"),
    "ours": Arm("crossing", "apart"),
    "ours-together": Arm("crossing", "together"),
    "ours-direct": Arm("crossing", "direct"),
}
USUAL = "mwms-ring,mwms-auto,mwms-ring-6,barrier,ours,ours-direct"


def cluster_of(rank: int, shape: Shape) -> str:
    """Return what TF_CONFIG tells a worker of the job that TensorFlow makes by itself."""
    workers = [f"{lab_job.place(host).address}:{ranked.PORT}" for host in shape.worker_hosts]
    task = {"type": "worker", "index": rank}
    return json.dumps({"cluster": {"worker": workers}, "task": task})


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

    def more(rank: int) -> Dict[str, str]:
        return {"TF_CONFIG": cluster_of(rank, hosts)} if of.is_stock else {}

    roles = ranked.roles_of(of, worker, hosts, more)
    settings = {**ranked.KEEPS_MEMORY, **_QUIET}
    return lab_job.run_roles(arm, roles, settings, limit_s, hosts, None, watch)


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """Compile the operations of layers, and our own ones; return the library of the former.

    It takes some twenty seconds, so that no job has to.

    Raises
    ------
    SystemExit
        They cannot be compiled.
    """
    library = folder / "layers.so"
    command = [sys.executable, "-m", "benchmarks.tensorflow.device", str(library)]
    if subprocess.run(command, env={**os.environ, **_QUIET}, check=False).returncode != 0:
        raise SystemExit("the operations of the layers could not be compiled")
    return library
