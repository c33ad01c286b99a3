"""Priorities that contradict the order in which gradients become ready, in a whole job."""

import re
from typing import Callable, List, Tuple

from job import Job

MakeJob = Callable[..., Job]


def lines_of_workers(job: Job, priority: str) -> List[Tuple[int, int]]:
    """Return how often each worker says that it has learned an order, and that it has taken one."""
    env = {"BYTESCHEDULER_PRIORITY": priority, "BYTESCHEDULER_LOG_LEVEL": "debug"}
    said = ("gradients become ready in another order", r"\b[1-9]\d* priorities are worker 0's")
    outputs = job.run("misleading.py", env=env)
    return sorted(
        (len(re.findall(said[0], output)), len(re.findall(said[1], output))) for output in outputs
    )


def test_all_workers_take_the_order_that_one_has_measured(make_job: MakeJob) -> None:
    assert lines_of_workers(make_job(), "measured") == [(0, 1), (1, 0)]


def test_the_caller_keeps_his_order(make_job: MakeJob) -> None:
    assert lines_of_workers(make_job(), "caller") == [(0, 0), (0, 0)]
