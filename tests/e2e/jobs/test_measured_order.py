"""Priorities that contradict the order in which gradients become ready, in a whole job."""

import pathlib
import re
from typing import Callable, List, Tuple

import pytest
from job import Job

from bytescheduler import timeline
from bytescheduler._timeline.files import KEY_NAME, is_bookkeeping

# The order is learned from the moments at which gradients become ready.
pytestmark = pytest.mark.serial
MakeJob = Callable[..., Job]


def lines_of_workers(job: Job, priority: str, *script: str) -> List[Tuple[int, int]]:
    """Return how often each worker says that it has learned an order, and that it has taken one."""
    env = {"BYTESCHEDULER_PRIORITY": priority, "BYTESCHEDULER_LOG_LEVEL": "debug"}
    said = ("gradients become ready in another order", r"\b[1-9]\d* priorities are worker 0's")
    outputs = job.run(*(script or ["steps/misleading.py"]), env=env)
    return sorted(
        (len(re.findall(said[0], output)), len(re.findall(said[1], output))) for output in outputs
    )


def test_all_workers_take_the_order_that_one_has_measured(make_job: MakeJob) -> None:
    assert lines_of_workers(make_job(), "measured") == [(0, 1), (1, 0)]


def test_calls_without_mxnet_are_measured_too(make_job: MakeJob) -> None:
    engine = ("steps/engine_worker.py", "10")
    assert lines_of_workers(make_job(), "measured", *engine) == [(0, 1), (1, 0)]
    assert lines_of_workers(make_job(), "caller", *engine) == [(0, 0), (0, 0)]


def test_the_caller_keeps_its_order(make_job: MakeJob) -> None:
    assert lines_of_workers(make_job(), "caller") == [(0, 0), (0, 0)]


def order_of_the_last_step(file: pathlib.Path, tensors: int, steps: int) -> str:
    """Return the letters of the first store's tensors, the most urgent first."""
    events = list(timeline.merge([file]))
    names = {e["args"]["key"]: e["args"]["name"] for e in events if e["name"] == KEY_NAME}
    pushes = [e for e in events if e.get("cat") == "push" and e["args"]["round"] == steps]
    pushes = [e for e in pushes if not is_bookkeeping(e["args"]["key"])]
    assert not any(names[e["args"]["key"]].startswith("f") for e in pushes)  # frozen
    firsts = sorted(pushes, key=lambda e: e["ts"])[:tensors]
    firsts.sort(key=lambda e: -e["args"]["priority"])
    return "".join(names[e["args"]["key"]][0] for e in firsts)


def test_frozen_joined_shared_and_skipped_layers_train_as_stock_in_the_order_of_need(
    make_job: MakeJob,
) -> None:
    env = {"BYTESCHEDULER_PRIORITY": "measured", "BYTESCHEDULER_TIMELINE": "t.json"}
    # Or MXNet makes the gradients of fifteen operations in one piece.
    job = make_job(env={**env, "MXNET_EXEC_BULK_EXEC_TRAIN": "0"})
    for output in job.run("cases/branching.py"):
        assert "well done" in output
    files = [job.folder / f"t-r{rank}.json" for rank in range(2)]
    (order,) = {order_of_the_last_step(file, tensors=6, steps=7) for file in files}
    # The shared one, the branches as they come, what joins them, the skipped one, the head.
    assert order in ("dagbhc", "dgabhc")
