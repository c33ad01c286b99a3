"""A Slurm of one host, with its own munge, ports and folders; nothing of the system's."""

import contextlib
import getpass
import os
import pathlib
import socket
import subprocess
import time
from typing import Callable, Dict, Iterator, List

__all__ = ["SLURM_PROGRAMS", "slurm"]

SLURM_PROGRAMS = ("/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "srun", "sbatch")
_LIMIT_S = 60.0
# proctrack/linuxproc needs no control groups, though slurmd loads that plugin all the same.
_CONF = """
SlurmdParameters=config_overrides
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_GROUPS = """
CgroupPlugin=cgroup/v1
CgroupMountpoint={folder}/groups
CgroupAutomount=no
"""


def _await(what: str, is_there: Callable[[], bool], logs: List[pathlib.Path]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not is_there():
        said = "\n".join(log.read_text(errors="replace")[-2000:] for log in logs)
        assert time.monotonic() < end, f"{what} is not there:\n{said}"
        time.sleep(0.1)


@contextlib.contextmanager
def slurm(folder: pathlib.Path, free_port: Callable[[], int]) -> Iterator[Dict[str, str]]:
    """Run it meanwhile; yield the variables by which srun and sbatch find it."""
    folder.chmod(0o755)  # munged refuses folders that others may write
    values = {
        "folder": folder,
        "user": getpass.getuser(),
        "host": socket.gethostname().split(".")[0],
        "controller": free_port(),
        "daemon": free_port(),
    }
    for name in ("state", "spool", "groups"):
        (folder / name).mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(**values))
    (folder / "cgroup.conf").write_text(_GROUPS.format(**values))
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    env = {**os.environ, "SLURM_CONF": str(conf)}
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    logs: List[pathlib.Path] = []
    with contextlib.ExitStack() as stack:

        def start(program: str, *arguments: str) -> None:
            command = [f"/usr/sbin/{program}", *arguments]
            logs.append(folder / f"{program}.out")
            with logs[-1].open("wb") as out:
                process = subprocess.Popen(
                    command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
            stack.callback(process.wait, _LIMIT_S)
            stack.callback(process.terminate)

        start("munged", "--foreground", f"--socket={folder}/munge.socket", "--force", *munge)
        _await("munged", (folder / "munge.socket").exists, logs)
        start("slurmctld", "-D", "-f", str(conf))
        start("slurmd", "-D", "-f", str(conf))

        def is_idle() -> bool:
            state = subprocess.run(
                ["sinfo", "-h", "-o", "%t"],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=False,
                timeout=_LIMIT_S,
            )
            return state.stdout.strip() == "idle"

        _await("the node", is_idle, logs)
        yield env
