"""Weights of a job are those of one process, with a barrier and across it."""

from typing import Callable

from job import Job

MakeJob = Callable[..., Job]


def test_weights_equal_the_weights_of_one_process(make_job: MakeJob) -> None:
    for output in make_job().run("torch/identity.py"):
        assert output.count("is the same") == 7


def test_three_workers_add_in_the_order_of_their_ranks(make_job: MakeJob) -> None:
    job = make_job(workers=3, env={"BYTESCHEDULER_DETERMINISTIC": "1"})
    for output in job.run("torch/identity.py"):
        assert output.count("is the same") == 7
