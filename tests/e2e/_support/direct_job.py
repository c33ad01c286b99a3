"""Whole direct jobs, started by variables alone."""

import os
import pathlib
import subprocess
import sys
import time
from typing import Dict, List

from job import HERE, PATIENCE_S, WORKERS, without_settings
from lab import Lab

__all__ = ["Direct", "start_direct"]


class Direct:
    """The processes of one job, each with its rank in RANK, and their output.

    Parameters
    ----------
    folder : Path
        For their output.
    port : int
        Where the scheduler node listens.
    size : int
        How many processes there are.
    settings : str
        More variables for each.

    Attributes
    ----------
    folder : Path
        As given.
    more : dict
        Variables of some ranks, which count more than those of all.
    processes : dict
        Those that were started, by rank.
    """

    def __init__(self, folder: pathlib.Path, port: int, size: int, **settings: str) -> None:
        self.folder = folder
        self._size = size
        self._given = {
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "BYTESCHEDULER_LOG_LEVEL": "error",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(HERE / "on_path"),
            **settings,
        }
        self.more: Dict[int, Dict[str, str]] = {}
        self.processes: Dict[int, subprocess.Popen[bytes]] = {}

    def start(self, script: str, *arguments: str) -> None:
        """Start `script` of workers/ in each, the last rank first."""
        for rank in reversed(range(self._size)):
            with self._log(rank).open("wb") as log:
                self.processes[rank] = subprocess.Popen(
                    [sys.executable, str(WORKERS / script), *arguments],
                    env={
                        **without_settings(),
                        **self._given,
                        **self.more.get(rank, {}),
                        "RANK": str(rank),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    def _log(self, rank: int) -> pathlib.Path:
        return self.folder / f"{rank}.log"

    def said(self, rank: int) -> str:
        """Return what the process of this rank wrote so far."""
        return self._log(rank).read_text(errors="replace")

    def wait_for_line(self, rank: int, text: str) -> None:
        """Return when the process of this rank has written `text`."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.said(rank):
            assert time.monotonic() < end, self.all_said()
            time.sleep(0.02)  # a file tells nobody that it has grown

    def codes(self) -> List[int]:
        """Return how the processes end, by rank."""
        return [self.processes[rank].wait(PATIENCE_S) for rank in range(self._size)]

    def all_said(self) -> str:
        """Return what all wrote, for a message."""
        return "".join(f"--- {rank}\n{self.said(rank)}" for rank in sorted(self.processes))

    def close(self) -> None:
        """End what is left."""
        for process in self.processes.values():
            process.kill()
            process.wait(PATIENCE_S)


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
