"""Processes of one host share memory for what is long; those of different hosts never do."""

import pathlib
from typing import Callable

import pytest
from job import Job
from lab import Lab, NoLab

MakeJob = Callable[..., Job]
DEBUG = {"BYTESCHEDULER_LOG_LEVEL": "debug"}
SHARING = {**DEBUG, "BYTESCHEDULER_SHARED_MEMORY": "8MiB"}
SAID = "sharing memory with "
MAPPED = "/memfd:bytescheduler"


def mappings_of(pid: int) -> int:
    return pathlib.Path(f"/proc/{pid}/maps").read_text().count(MAPPED)


@pytest.mark.parametrize("size", ["8MiB", "256KiB", ""])
def test_sums_are_the_same_with_it_with_little_and_without(make_job: MakeJob, size: str) -> None:
    job = make_job(servers=2, env={**DEBUG, "BYTESCHEDULER_SHARED_MEMORY": size})
    for output in job.run("cases.py", "native", "shapes"):
        for server in range(2):
            assert (f"{SAID}server {server}" in output) == bool(size)
    for server in job.servers:
        for worker in range(2):
            assert (f"{SAID}worker {worker}" in server.output()) == bool(size)


def test_it_is_gone_with_who_is_killed(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=1, env=SHARING)
    worker = job.start_worker("cases.py", "native", "train_for_long")
    worker.wait_for_line("training")
    # What it sends and what it is sent, and what the scheduler node did not take.
    assert mappings_of(worker.pid) == 3
    assert mappings_of(job.servers[0].pid) == 3
    worker.kill()
    for process in job.processes:
        if process is not worker:
            assert process.wait() == 1
    assert "lost worker 0" in job.servers[0].output()


def test_hosts_share_none(make_job: MakeJob) -> None:
    try:
        hosts = Lab(3)
    except NoLab as error:
        pytest.skip(f"no hosts of their own to be had here: {error}")
    with hosts as lab:
        # They see each other's processes, which real hosts do not: addresses have to tell.
        job = make_job(workers=1, servers=1, env=SHARING, lab=lab)
        for output in job.run("cases.py", "native", "shapes"):
            assert "connected to server 0" in output
        assert SAID not in job.all_output()
