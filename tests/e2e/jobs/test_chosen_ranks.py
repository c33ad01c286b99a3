"""Workers that ask for their ranks, without `bslaunch` around them."""

import re
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "DMLC_WORKER_ID")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_worker_has_the_rank_that_its_launcher_gave_it(
    make_job: MakeJob, order: "tuple[int, ...]"
) -> None:
    """Whatever the order of start and of addresses, and whoever says it."""
    job = make_job(workers=3)
    for rank in order:
        job.start_worker("steps/ranked_worker.py", env={NAMES[rank]: str(rank)})
    for process in job.processes:
        assert process.wait() == 0, job.all_output()
    for rank, worker in zip(order, job.workers):
        assert f"rank {rank} of 3, 1 servers, process {rank}\n" in worker.output()


def test_a_rank_taken_twice_names_both_hosts(make_job: MakeJob) -> None:
    job = make_job(workers=2, env={"BYTESCHEDULER_TIMEOUT": "20s"})
    first = job.start_worker("steps/ranked_worker.py", env={"RANK": "1"})
    job.processes[0].wait_for_line("scheduler: worker ")
    second = job.start_worker("steps/ranked_worker.py", env={"RANK": "1"})
    assert second.wait() == 1
    said = second.output()
    host = r"worker 127\.0\.0\.\d+\S*"
    assert re.search(f"{host} asks for rank 1, which {host} has asked for", said), said
    assert first.running()
