"""Workers of direct jobs on lab hosts."""

import os
import pathlib
import subprocess
from typing import Dict, List

from job import HERE, without_settings
from lab import Lab

__all__ = ["start_direct"]


def start_direct(
    lab: Lab,
    folder: pathlib.Path,
    hosts: List[int],
    rank: int,
    command: List[str],
    port: int,
    **settings: str,
) -> "subprocess.Popen[str]":
    """Start the worker of this rank, as torchrun would; `hosts` are those of all workers.

    `settings` are more variables.
    """
    host = hosts[rank]
    env: Dict[str, str] = {
        **without_settings(),
        "PYTHONPATH": os.pathsep.join([str(HERE / "on_path"), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "BYTESCHEDULER_TUNING": "off",
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(hosts[:rank].count(host)),
        "LOCAL_WORLD_SIZE": str(hosts.count(host)),
        "MASTER_ADDR": lab.address(0),
        "MASTER_PORT": str(port),
        **settings,
    }
    return subprocess.Popen(
        lab.on(host, folder, command),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
