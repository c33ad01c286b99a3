"""However a process ends, its sums are right, nothing aborts, and no worker counts as lost."""

import os
import subprocess
import sys
from typing import Callable

import pytest
from job import PATIENCE_S, WORKERS, Job

MakeJob = Callable[..., Job]
CASES = ["daemon", "registered", "attribute", "child", "pooled", "around", "skipped"]


@pytest.mark.parametrize("stock", [False, True], ids=["ours", "stock"])
def test_a_process_ends_in_every_way(make_job: MakeJob, stock: bool) -> None:
    # A fork server's workers have fewer objects to collect at their end.
    first, *others = [make_job(stock=stock, forks=False) for _ in CASES]
    for output in first.run_with(others, "cases/endings.py", "dist_sync", CASES):
        assert output.count("well done") == len(CASES)
    for job in (first, *others):
        assert "lost worker" not in job.all_output()


def launched(case: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "1", "--"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "BYTESCHEDULER_"))}
    return subprocess.run(
        [*command, sys.executable, str(WORKERS / "cases/endings.py"), "dist_sync", case],
        env={**env, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("case", ["untold", "skipped"])
def test_under_bslaunch_a_worker_that_ends_with_0_has_left(case: str) -> None:
    done = launched(case)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("well done") == 2
    assert "lost" not in done.stdout


def test_a_child_that_fails_tells_why_and_where() -> None:
    done = launched("unlucky")
    assert done.returncode == 1, done.stdout
    assert "gave up: uncaught ValueError: no luck" in done.stdout
    assert "in failing" in done.stdout  # a line of the traceback
    assert "lost" not in done.stdout


def test_a_store_that_comes_after_the_job_does_not_wait_for_ever() -> None:
    done = launched("late")
    assert done.returncode == 1, done.stdout
    assert "makes a store, but the job is over" in done.stdout
    assert "Traceback" not in done.stdout
