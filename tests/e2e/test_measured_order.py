"""Priorities that contradict the order in which gradients become ready, in a whole job."""

import pathlib
import re
from typing import Callable, Dict, List, Tuple

import numpy as np
from job import Job
from trained import assert_equal

from bytescheduler import timeline

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


def test_a_model_of_branches_trains_as_stock_in_one_order(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    make_job(stock=True).run("branched.py", "stock", str(tmp_path / "stock"))
    env = {"BYTESCHEDULER_TIMELINE": str(tmp_path / "t.json"), "BYTESCHEDULER_TUNING": "off"}
    make_job().run("branched.py", "scheduled", str(tmp_path / "ours"), env=env)
    stock, *ours = (
        dict(np.load(tmp_path / file)) for file in ("stock-0.npz", "ours-0.npz", "ours-1.npz")
    )
    for weights in ours:
        assert_equal(stock, weights)
    priorities: Dict[int, Dict[str, int]] = {1: {}, 2: {}}  # in the last step
    for event in timeline.merge([tmp_path / "t-r0.json", tmp_path / "t-r1.json"]):
        if event.get("cat") == "push" and event["args"]["round"] == 10:
            priorities[event["pid"]][event["args"]["key"]] = event["args"]["priority"]
    # Of seven layers one is frozen; each has a weight and a bias.
    assert len(set(priorities[1].values())) == 12, priorities
    assert priorities[1] == priorities[2]
