"""Whole direct jobs, started by variables alone."""

import pathlib
import sys
import time
from typing import Dict, List

from forked import start_worker
from job import AS_IN_JOBS, PATIENCE_S, WORKERS, Process, place_on, without_settings
from lab import Lab

from bytescheduler._process.child import Child, Streams

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
            **AS_IN_JOBS,
            **settings,
        }
        self.more: Dict[int, Dict[str, str]] = {}
        self.processes: Dict[int, Child] = {}

    def start(self, script: str, *arguments: str) -> None:
        """Start `script` of workers/ in each, the last rank first."""
        for rank in reversed(range(self._size)):
            with self._log(rank).open("wb") as log:
                env = {**without_settings(), **self._given, **self.more.get(rank, {})}
                self.processes[rank] = start_worker(
                    f"worker {rank}",
                    [sys.executable, str(WORKERS / script), *arguments],
                    {**env, "RANK": str(rank)},
                    streams=Streams(stdout=log, stderr=log),
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
            with process:  # ends it
                pass


def start_direct(
    lab: Lab,
    folder: pathlib.Path,
    hosts: List[int],
    rank: int,
    command: List[str],
    port: int,
    **settings: str,
) -> Process:
    """Start the worker of this rank, as torchrun would; `hosts` are those of all workers.

    `command` is the interpreter, a script and its arguments; `settings` are more variables.
    """
    host = hosts[rank]
    env: Dict[str, str] = {
        **without_settings(),
        **AS_IN_JOBS,
        "BYTESCHEDULER_TUNING": "off",
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(hosts[:rank].count(host)),
        "LOCAL_WORLD_SIZE": str(hosts.count(host)),
        "MASTER_ADDR": lab.address(0),
        "MASTER_PORT": str(port),
        **settings,
    }
    log = folder / f"{port}-{rank}.log"
    with log.open("wb") as file:
        streams = Streams(stdout=file, stderr=file)
        place = place_on(lab, host, folder)
        child = start_worker(
            f"worker {rank}", command, env, streams=streams, folder=folder, place=place
        )
    return Process(child, log)
