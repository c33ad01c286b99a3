"""Somebody is lost in the middle: everybody else ends soon, and says who it was."""

import re
from typing import Callable

import pytest
from job import Job, Process

MakeJob = Callable[..., Job]
STORES = ["native", "dist_sync"]
# Half of the heartbeat time-out, the least that would do it without a broken connection.
SOON_S = 15.0
# With the start of everyone on a loaded machine.
STARTED_AND_SOON_S = 30.0
DEBUG = {"BYTESCHEDULER_LOG_LEVEL": "debug"}


def start_training(job: Job, store: str) -> None:
    for _ in range(2):
        job.start_worker("cases/cases.py", store, "train_for_long")
    for worker in job.workers:
        worker.wait_for_line("training")


def assert_all_end_and_say(job: Job, killed: Process, pattern: str) -> None:
    for process in job.processes:
        if process is not killed:
            assert process.wait(SOON_S) not in (0, None), job.all_output()
            assert re.search(pattern, process.output()), f"{process.name}:\n{job.all_output()}"
    for worker in job.workers:
        if worker is not killed:
            assert "mxnet.base.MXNetError" in worker.output()


def description_of(process: Process) -> str:
    """Return "server 1 (127.0.0.1:4711)", as its own log at level debug has it."""
    found = re.search(r"registered as ((?:worker|server) \d+ \([\d.:]+\))", process.output())
    assert found, process.output()
    return found.group(1)


@pytest.mark.parametrize("store", STORES)
def test_a_killed_server_ends_all_nodes(make_job: MakeJob, store: str) -> None:
    job = make_job(servers=2, env=DEBUG)
    start_training(job, store)
    lost = description_of(job.servers[0])
    job.servers[0].kill()
    assert_all_end_and_say(job, job.servers[0], re.escape(f"lost {lost}: connection closed"))


@pytest.mark.parametrize("store", STORES)
def test_a_killed_worker_ends_all_nodes(make_job: MakeJob, store: str) -> None:
    job = make_job(servers=2, env=DEBUG)
    start_training(job, store)
    # Beside a stock node there are two addresses of one rank; either connection may break first.
    lost = description_of(job.workers[1]).split(" (")[0]
    job.workers[1].kill()
    assert_all_end_and_say(job, job.workers[1], rf"lost {lost} \(127\.0\.0\.1:\d+\): connection")


def test_a_worker_with_other_settings_ends_the_whole_job(make_job: MakeJob) -> None:
    # With a stock store, which would wait for the others when the process ends.
    job = make_job()
    for flag in "01":
        env = {"BYTESCHEDULER_DETERMINISTIC": flag}
        job.start_worker("cases/cases.py", "dist_sync", "train_for_long", env=env)
    for process in job.processes:
        assert process.wait(STARTED_AND_SOON_S) != 0, job.all_output()
    assert "has BYTESCHEDULER_DETERMINISTIC=1 instead of" in job.all_output()


def test_a_last_round_that_is_lost_shows_in_the_exit_code(make_job: MakeJob) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("cases/cases.py", "native", "ends_unheard")
    for worker in job.workers:
        worker.wait_for_line("pushed")
    job.servers[0].kill()
    for worker in job.workers:
        assert worker.wait(SOON_S) == 1, job.all_output()
        assert "bytescheduler: " in worker.output()


@pytest.mark.parametrize("store", STORES)
def test_an_uncaught_exception_in_one_worker_is_told_to_the_other(
    make_job: MakeJob, store: str
) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("cases/cases.py", store, "raises_in_rank_1")
    codes = [worker.wait(STARTED_AND_SOON_S) for worker in job.workers]
    assert codes == [1, 1], job.all_output()
    outputs = [worker.output() for worker in job.workers]
    outputs.sort(key=lambda text: "raise RuntimeError" in text)
    told = r"MXNetError: .*worker 1 gave up: uncaught RuntimeError: a mistake of the user's"
    assert re.search(told, outputs[0], re.S), outputs[0]
    assert "RuntimeError: a mistake of the user's" in outputs[1]


@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_exits_in_the_middle_is_told_to_the_other(
    make_job: MakeJob, store: str
) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("cases/cases.py", store, "exits_in_rank_1")
    codes = sorted(worker.wait(STARTED_AND_SOON_S) for worker in job.workers)
    assert codes == [1, 7], job.all_output()
    told = r"MXNetError: .*worker 1 gave up: exit code 7"
    assert re.search(told, job.all_output(), re.S), job.all_output()


def test_a_gradient_that_never_comes_is_told_to_all_workers(make_job: MakeJob) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("cases/cases.py", "native", "bad_gradient")
    for worker in job.workers:
        assert worker.wait(STARTED_AND_SOON_S) == 1, job.all_output()
        assert "MXNet skipped the push-pull of key 'weight'" in worker.output()
