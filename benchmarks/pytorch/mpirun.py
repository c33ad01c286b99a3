"""Open MPI's `mpirun` on the hosts of a lab, which starts a process on each.

Its daemons start by a script of ours in the place of ssh. Needs Debian's openmpi-bin.
"""

import os
import pathlib
from typing import List

from benchmarks.lab import lab_job
from bytescheduler._advise.shape import Shape

# Sockets alone, as between real hosts; yield, as there may be more ranks than processors.
_OPTIONS = {
    "btl": "tcp,self",
    "btl_tcp_if_include": "eth0",
    "oob_tcp_if_include": "eth0",
    "mpi_yield_when_idle": "1",
}


def _agent(folder: str) -> str:
    """Write the program by which mpirun starts its daemon on another host; return its path."""
    path = pathlib.Path(folder) / "agent"
    # A host cannot see the namespaces of another host, but those of this process.
    leave = f"nsenter --target {os.getpid()} --mount --uts --ipc --net --wd=/ --"
    start = " ".join([leave, *lab_job.place(1).prefix[:-1], '"$host"'])
    path.write_text(
        f'#!/bin/sh\nhost=${{1##*.}}; shift\nexec {start} env TMPDIR="{folder}/$host" sh -c "$*"\n'
    )
    path.chmod(0o700)
    return str(path)


def command_of(folder: str, shape: Shape, *options: str) -> List[str]:
    """Return the command that runs on the first worker's host, before that of a process.

    Parameters
    ----------
    folder : str
        For files of mpirun; it stays until the job ends.
    shape : Shape
        A process starts for each worker.
    options : str
        More options of mpirun.
    """
    for host in shape.worker_hosts:
        (pathlib.Path(folder) / str(host)).mkdir(exist_ok=True)
    hosts = [f"{lab_job.place(host).address}:1" for host in shape.worker_hosts]
    command = ["env", f"TMPDIR={folder}/1", "mpirun", "--allow-run-as-root", "--oversubscribe"]
    for name, value in {**_OPTIONS, "plm_rsh_agent": _agent(folder)}.items():
        command += ["--mca", name, value]
    return [*command, *options, "-H", ",".join(hosts), "-n", str(len(hosts))]
