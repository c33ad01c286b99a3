"""A worker is killed, and another one takes its place, in a job that goes on."""

import json
import pathlib
import signal
from typing import Callable, List

import pytest
from job import Job, Process
from kills import numbers

MakeJob = Callable[..., Job]
LIVES, STEPS = 3, 20
REJOIN = {"BYTESCHEDULER_REJOIN_TIMEOUT": "60s"}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("store", ["wrapped", "dist_async"])
def test_a_killed_worker_of_dist_async_is_replaced_again_and_again(
    make_job: MakeJob, tmp_path: pathlib.Path, store: str, rank: int
) -> None:
    """What each of them had pushed is in the weights once; the others see nothing of it."""
    job = make_job(servers=2, env=REJOIN)
    arguments = (store, str(rank), str(LIVES), str(STEPS), str(tmp_path))
    for _ in range(2):
        job.start_worker("steps/rejoining_worker.py", *arguments)
    lost: List[Process] = []
    for _ in range(LIVES - 1):
        there = [worker for worker in job.workers if worker not in lost]
        lost.append(job.wait_for_text(there, "to be killed"))
        lost[-1].kill()
        job.start_worker("steps/rejoining_worker.py", *arguments)
    for process in job.processes:
        assert process in lost or process.wait() == 0, job.all_output()
    assert f"lost worker {rank}" in job.processes[0].output()


def test_a_worker_that_stopped_for_too_long_is_replaced_and_told(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    """Its pushes count once, and none after another has its place."""
    job = make_job(env={**REJOIN, "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "3s"})

    def start(life: int) -> Process:
        return job.start_worker("steps/counting_worker.py", str(life), str(tmp_path))

    first, stopped = start(0), start(1)
    stopped.wait_for_line("counted 3")
    stopped.signal(signal.SIGSTOP)
    job.processes[0].wait_for_line("silent for 3 s")
    begun = numbers(stopped)[1]
    newcomer = start(2)
    newcomer.wait_for_line("counted 3")
    stopped.signal(signal.SIGCONT)
    assert stopped.wait() != 0, job.all_output()
    assert "was taken for lost" in stopped.output(), stopped.output()
    newcomer.wait_for_line(f"counted {numbers(newcomer)[1] + 20}")
    (tmp_path / "stop").touch()
    for process in job.processes:
        assert process is stopped or process.wait() == 0, job.all_output()
    columns = json.loads(first.output().split("in the end ")[1].splitlines()[0])
    assert set(columns[0]) == {numbers(first)[1]}
    assert set(columns[2]) == {numbers(newcomer)[1]}
    # The one that was under way when it stopped may have arrived.
    assert set(columns[1]) <= {begun, begun + 1}, (columns[1], begun)
    assert not any(map(any, columns[3:]))


def lose(job: Job, losses: int, when: str, rank: int, folder: pathlib.Path) -> List[Process]:
    """Kill the worker of `rank` of a job of stock `dist_sync` stores; return those that were."""
    for _ in range(2):
        job.start_worker("steps/rejoining_in_step.py", when, str(rank), str(folder))
    lost: List[Process] = []
    for _ in range(losses):
        there = [worker for worker in job.workers if worker not in lost]
        lost.append(job.wait_for_text(there, "to be killed"))
        lost[-1].kill()
        job.start_worker("steps/rejoining_in_step.py", when, str(rank), str(folder))
    return lost


@pytest.mark.parametrize(("when", "losses", "rank"), [("between", 2, 0), ("owed", 1, 1)])
def test_a_killed_worker_of_a_stock_dist_sync_job_is_replaced(
    make_job: MakeJob, tmp_path: pathlib.Path, when: str, losses: int, rank: int
) -> None:
    """Between two steps, or in the middle of one: every value of every step is right."""
    job = make_job(servers=2, env=REJOIN)
    lost = lose(job, losses, when, rank, tmp_path)
    for process in job.processes:
        assert process in lost or process.wait() == 0, job.all_output()
    assert job.processes[0].output().count(f"lost worker {rank} ") == losses


def test_a_returning_worker_that_repeats_a_push_is_told_so_at_the_end(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    job = make_job(servers=2, env={**REJOIN, "BYTESCHEDULER_STRAGGLER_TIMEOUT": "20s"})
    lost = lose(job, 1, "again", 1, tmp_path)
    for process in job.processes:
        assert process in lost or process.wait() != 0, job.all_output()
    # Whichever deadline is over first: that of the key, or that of the barrier at the end.
    said = job.processes[0].output()
    at_the_end = "at a barrier for worker 0"
    assert "still waiting for worker 0 to push it" in said or at_the_end in said, said
    assert "start the job again from your last checkpoint" in said, said


def test_a_synchronous_job_ends_and_says_why(make_job: MakeJob) -> None:
    job = make_job(env=REJOIN)
    for _ in range(2):
        job.start_worker("cases/cases.py", "dist_sync", "train_for_long")
    for worker in job.workers:
        worker.wait_for_line("training")
    job.workers[1].kill()
    assert job.workers[0].wait() != 0
    assert "no worker can take its place" in job.workers[0].output(), job.all_output()
    assert "start the job again from your last checkpoint" in job.workers[0].output()
