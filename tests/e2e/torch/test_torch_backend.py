"""Jobs of torch.distributed over the backend bytescheduler."""

import pathlib
import signal
import sys
from typing import Callable, Iterator

import pytest
from direct_job import Direct
from job import WORKERS
from launched import BSLAUNCH, run

SCRIPT = "torch_distributed/collectives.py"


@pytest.fixture
def direct(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> Iterator[Direct]:
    # By the store alone, as the scheduler node has no port of its own.
    store = {"MASTER_PORT": str(free_port()), "DMLC_PS_ROOT_PORT": ""}
    job = Direct(tmp_path, 0, 2, **store)
    yield job
    job.close()


def test_collectives_and_weights_equal_gloo(direct: Direct) -> None:
    direct.start(SCRIPT, "whole")
    assert direct.codes() == [0, 0], direct.all_said()
    for rank in range(2):
        assert "weights are Gloo's" in direct.said(rank)
        assert "mistakes are told" in direct.said(rank)
        assert "all is well" in direct.said(rank)


def test_a_killed_worker_is_named(direct: Direct) -> None:
    direct.start(SCRIPT, "loss")
    direct.wait_for_line(1, "waits")
    direct.processes[1].signal(signal.SIGKILL)
    assert direct.codes()[0] == 1, direct.all_said()
    assert "all_reduce #6 of the default group: lost worker 1" in direct.said(0)


def test_under_bslaunch_it_uses_the_servers() -> None:
    script = [sys.executable, str(WORKERS / SCRIPT), "short"]
    done = run([*BSLAUNCH, "--local", "-w", "2", "-s", "1", "--", *script])
    assert done.stdout.count("all is well") == 2
