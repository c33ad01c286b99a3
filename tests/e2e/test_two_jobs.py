"""A second job that is started by mistake on the root port of one that is there."""

import pathlib
from typing import Callable, List

import pytest
from job import Job, Process, free_port

MakeJob = Callable[..., Job]
SOON_S = 30.0
STEPS = "60"
IN_USE = "the port is in use: end what listens there (a job that still runs?), or give all nodes"
NOT_HERE = "nodes of another job need another DMLC_PS_ROOT_PORT"
OTHER_SETTINGS = "has BYTESCHEDULER_DETERMINISTIC=1 instead of BYTESCHEDULER_DETERMINISTIC=0, which"


@pytest.mark.parametrize("first_waits", [False, True], ids=["it trains", "it waits"])
def test_the_nodes_of_the_second_are_told_what_to_do_and_the_first_trains_on(
    make_job: MakeJob, tmp_path: pathlib.Path, first_waits: bool
) -> None:
    """Those of other settings also where the first has no workers yet."""
    job = make_job(ports=[free_port(), 0])
    first = list(job.processes)
    second: List[Process] = []
    other = {"BYTESCHEDULER_DETERMINISTIC": "1"} if first_waits else {}

    def start_worker(of: str) -> None:
        (first if of == "first" else second).append(
            job.start_worker(
                *("restarted_worker.py", str(tmp_path / of), STEPS),
                env=None if of == "first" else other,
            )
        )

    def train() -> None:
        for _ in range(2):
            start_worker("first")
        job.workers[0].wait_for_line("step 3 done")

    if not first_waits:
        train()
    else:
        first[0].wait_for_line("waiting for 2 of 2 workers, 0 of 1 servers")
    second += [job.start_scheduler("second scheduler"), job.start_server(0, "second server", other)]
    if first_waits:
        for process in second:
            process.wait(SOON_S)
        train()
    for _ in range(2):
        start_worker("second")
    for process in second:
        assert process.wait(SOON_S) == 1, job.all_output()
        text = OTHER_SETTINGS if first_waits else NOT_HERE
        text = IN_USE if process is second[0] else text
        assert text in process.output(), f"{process.name}:\n{job.all_output()}"
    for process in first:
        assert process.wait() == 0, job.all_output()
    for worker in job.workers[:2]:
        assert "every step counts once" in worker.output(), job.all_output()
