"""AMP's loss scaling: a step that overflows on some workers is skipped by all, or refused."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]


def test_all_workers_skip_the_steps_that_overflow_on_one(make_job: MakeJob) -> None:
    for output in make_job().run("cases/amp.py", "native", "every_way"):
        assert "well done" in output


def test_codes_say_that_a_step_overflows_and_keep_nothing_of_it(make_job: MakeJob) -> None:
    job = make_job(env={"BYTESCHEDULER_MIN_COMPRESS": "0"})
    for output in job.run("cases/amp.py", "native", "coded"):
        assert "well done" in output


def test_signs_keep_nothing_infinite(make_job: MakeJob) -> None:
    job = make_job(env={"BYTESCHEDULER_MIN_COMPRESS": "1"})
    for output in job.run("cases/amp.py", "native", "signed"):
        assert "well done" in output


def test_on_stock_servers_all_workers_skip_the_same_steps(make_job: MakeJob) -> None:
    for output in make_job(stock=True).run("cases/amp.py", "dist_sync", "on_the_store"):
        assert "well done" in output


@pytest.mark.parametrize(
    ("store", "case", "text"),
    [
        ("native", "compressed", "AMP's loss scaling does not go with gradient compression"),
        ("dist_async", "asynchronous", "AMP's loss scaling does not go with a dist_async store"),
    ],
)
def test_where_no_step_can_be_skipped_every_worker_says_so(
    make_job: MakeJob, store: str, case: str, text: str
) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("cases/amp.py", store, case)
    assert [worker.wait() for worker in job.workers] == [1, 1], job.all_output()
    for worker in job.workers:
        assert text in worker.output(), job.all_output()
