"""Jobs whose workers host the scheduler node and the servers, started by variables alone."""

import pathlib
import re
import subprocess
import sys
import time
from typing import Callable, Dict, Iterator, List

import pytest
from job import PATIENCE_S, WORKERS, without_settings

SIZE = 3
FOR_EVER = "1000000"


class Direct:
    """The processes of one job, each with its rank in RANK, and what each wrote."""

    def __init__(self, folder: pathlib.Path, port: int) -> None:
        self._folder = folder
        self._given = {
            "WORLD_SIZE": str(SIZE),
            "MASTER_ADDR": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "BYTESCHEDULER_LOG_LEVEL": "error",
        }
        self.processes: Dict[int, subprocess.Popen[bytes]] = {}

    def start(self, sums: str) -> None:
        """Start all, the last rank first."""
        for rank in reversed(range(SIZE)):
            with self._log(rank).open("wb") as log:
                self.processes[rank] = subprocess.Popen(
                    [sys.executable, str(WORKERS / "steps/direct_worker.py"), sums],
                    env={**without_settings(), **self._given, "RANK": str(rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    def _log(self, rank: int) -> pathlib.Path:
        return self._folder / f"{rank}.log"

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
        return [self.processes[rank].wait(PATIENCE_S) for rank in range(SIZE)]

    def all_said(self) -> str:
        """Return what all wrote, for a message."""
        return "".join(f"--- {rank}\n{self.said(rank)}" for rank in sorted(self.processes))

    def close(self) -> None:
        """End what is left."""
        for process in self.processes.values():
            process.kill()
            process.wait(PATIENCE_S)


@pytest.fixture
def direct(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> Iterator[Direct]:
    job = Direct(tmp_path, free_port())
    yield job
    job.close()


def test_each_worker_has_its_launchers_rank_and_all_have_equal_averages(direct: Direct) -> None:
    direct.start("3")
    assert direct.codes() == [0] * SIZE, direct.all_said()
    for rank in range(SIZE):
        said = direct.said(rank)
        assert f"rank {rank} of {SIZE}, {SIZE} servers\n" in said
        found = re.findall(r"average \d is (\d+) to (\d+)", said)
        assert found == [("1", "1"), ("2", "2"), ("3", "3")], said
        assert said.endswith("left\n")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_ends_the_other_processes_with_the_engines_error(
    direct: Direct, victim: int
) -> None:
    direct.start(FOR_EVER)
    direct.wait_for_line(victim, "average 2 is")
    direct.processes[victim].kill()
    codes = direct.codes()
    for rank in set(range(SIZE)) - {victim}:
        assert codes[rank] == 1, direct.all_said()
        # Each process sees first what it hears of first.
        nodes = rf"worker {victim}|server {victim}{'|the scheduler node' if victim == 0 else ''}"
        lost = rf"bytescheduler\.errors\.PeerLost: .*lost ({nodes}) "
        assert re.search(lost, direct.said(rank)), direct.all_said()
