"""Processes of one host share memory for what is long; those of different hosts never do."""

import pathlib
import time
from typing import Callable, List

import pytest
from job import Job
from kills import Chance, any_seed, replace_workers
from lab import Lab, hosts_or_skip

MakeJob = Callable[..., Job]
DEBUG = {"BYTESCHEDULER_LOG_LEVEL": "debug"}
SAID = "sharing memory with "
PATIENCE_S = 60.0


def wait_until_kept(job: Job, kept: List[int]) -> None:
    """Wait until the processes of `job` have so many each."""
    end = time.monotonic() + PATIENCE_S
    while [each.shared_memories() for each in job.processes if each.running()] != kept:
        assert time.monotonic() < end, job.all_output()
        time.sleep(0.05)  # nobody tells


@pytest.mark.parametrize("size", ["", "256KiB", "0"])
def test_sums_are_the_same_with_it_with_little_and_without(make_job: MakeJob, size: str) -> None:
    job = make_job(servers=2, env={**DEBUG, "BYTESCHEDULER_SHARED_MEMORY": size})
    for output in job.run("cases/cases.py", "native", "shapes"):
        for rank in range(2):
            assert (f"{SAID}server {rank}" in output) == (size != "0")
    for server in job.servers:
        for rank in range(2):
            assert (f"{SAID}worker {rank}" in server.output()) == (size != "0")


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_shared_memory_of_a_killed_process_is_gone(make_job: MakeJob, victim: str) -> None:
    job = make_job(workers=1, servers=1)
    worker = job.start_worker("cases/cases.py", "native", "train_for_long")
    worker.wait_for_line("training")
    # What it sends and what it is sent; nobody offers the scheduler node any.
    wait_until_kept(job, [0, 2, 2])
    killed = worker if victim == "worker" else job.servers[0]
    killed.kill()
    for process in job.processes:
        if process is not killed:
            assert process.wait() == 1
    assert f"lost {victim} 0" in job.all_output()


def test_a_job_that_goes_on_without_a_killed_worker_keeps_none_of_its_memory(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    job = make_job(env={"BYTESCHEDULER_REJOIN_TIMEOUT": "60s"})
    arguments = ("wrapped", "1", "2", "20", str(tmp_path))
    for _ in range(2):
        job.start_worker("steps/rejoining_worker.py", *arguments)
    lost = job.wait_for_text(job.workers, "to be killed")
    wait_until_kept(job, [0, 4, 2, 2])
    lost.kill()
    wait_until_kept(job, [0, 2, 2])
    job.start_worker("steps/rejoining_worker.py", *arguments)
    for process in job.processes:
        assert process is lost or process.wait() == 0, job.all_output()


def test_hosts_share_none(make_job: MakeJob) -> None:
    with hosts_or_skip(lambda: Lab(3)) as lab:
        # They see each other's processes, which real hosts do not: addresses have to tell.
        job = make_job(workers=1, servers=1, env=DEBUG, lab=lab)
        for output in job.run("cases/cases.py", "native", "shapes"):
            assert "connected to server 0" in output
        assert SAID not in job.all_output()


def test_workers_that_are_killed_and_replaced_leave_nothing(tmp_path: pathlib.Path) -> None:
    """Each push counts once, and nobody grows, of memory of its own or shared."""
    replace_workers(None, tmp_path, Chance(None, any_seed()), seconds=4)
