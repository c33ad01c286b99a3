"""How `bslaunch --local` ends a job of real workers, which host the servers or do not."""

import os
import re
import signal
import subprocess
import sys
import time
from typing import List

import pytest
from job import WORKERS, without_settings
from launched import BSLAUNCH

LIMIT_S = 60.0
WORKER = [sys.executable, str(WORKERS / "direct/stopped.py")]


def start(servers: str, *options: str, deaf: bool = False) -> "subprocess.Popen[str]":
    command = [*BSLAUNCH, "--local", "-w", "2", "-s", servers, *options, "--", *WORKER]
    return subprocess.Popen(
        [*command, "deaf"] if deaf else command,
        env={**without_settings(), "BYTESCHEDULER_LOG_LEVEL": "warning"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until_training(job: "subprocess.Popen[str]") -> "List[int]":
    """Return when both workers train, with the numbers of their processes."""
    assert job.stdout is not None
    pids: List[int] = []
    while len(pids) < 2:
        line = job.stdout.readline()
        assert line, "the job has ended"
        pids += [int(pid) for pid in re.findall(r"\] process (\d+) trains", line)]
    return pids


def assert_gone(pids: "List[int]") -> None:
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("servers", ["0", "1"], ids=["hosted", "apart"])
def test_workers_save_in_the_grace_after_a_signal(servers: str) -> None:
    with start(servers, "--grace", "20") as job:
        pids = until_training(job)
        job.send_signal(signal.SIGTERM)
        output, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, output
    assert "bslaunch: SIGTERM: the workers have 20 s to save and end; a second" in output
    for rank in range(2):
        assert f"[worker {rank}] saved\n" in output
    assert "lost" not in output
    assert_gone(pids)


def test_workers_are_killed_when_the_grace_is_over() -> None:
    with start("0", "--grace", "1", deaf=True) as job:
        pids = until_training(job)
        began = time.monotonic()
        job.send_signal(signal.SIGTERM)
        output, _ = job.communicate(timeout=LIMIT_S)
        took = time.monotonic() - began
    assert job.returncode == 128 + signal.SIGTERM, output
    assert "bslaunch: 1 s are over; ending worker 0, worker 1" in output
    assert 1 <= took < 15, output
    assert_gone(pids)


def test_a_job_ends_after_its_time() -> None:
    with start("0", "--timeout", "15", "--grace", "20") as job:
        pids = until_training(job)
        output, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 124, output
    assert "bslaunch: not finished after 15 s" in output
    for rank in range(2):
        assert f"[worker {rank}] saved\n" in output
    assert_gone(pids)
