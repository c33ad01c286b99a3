"""Jobs whose workers host the scheduler node and the servers, started by variables alone."""

import pathlib
import re
import signal
from typing import Callable, Iterator

import pytest
from direct_job import Direct

SIZE = 3
SCRIPT = "steps/direct_worker.py"
FOR_EVER = "1000000"


@pytest.fixture
def direct(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> Iterator[Direct]:
    job = Direct(tmp_path, free_port(), SIZE)
    yield job
    job.close()


def test_each_worker_has_its_launchers_rank_and_all_have_equal_averages(direct: Direct) -> None:
    direct.start(SCRIPT, "3")
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
    direct.start(SCRIPT, FOR_EVER)
    direct.wait_for_line(victim, "average 2 is")
    direct.processes[victim].signal(signal.SIGKILL)
    codes = direct.codes()
    for rank in set(range(SIZE)) - {victim}:
        assert codes[rank] == 1, direct.all_said()
        # Each process sees first what it hears of first.
        nodes = rf"worker {victim}|server {victim}{'|the scheduler node' if victim == 0 else ''}"
        lost = rf"bytescheduler\.errors\.PeerLost: .*lost ({nodes}) "
        assert re.search(lost, direct.said(rank)), direct.all_said()
