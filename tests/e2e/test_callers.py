"""What calls a store in MXNet trains over ours as one process trains alone."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]


@pytest.mark.parametrize(
    "cases",
    [
        ["trainers", "half_precision", "devices", "accumulation"],
        ["many_stores", "sparse_embedding"],
        ["fit", "buckets"],
        ["sparse_module"],
    ],
    ids=lambda cases: cases[0],
)
def test_two_workers_train_as_one_process_alone(make_job: MakeJob, cases: "list[str]") -> None:
    for output in make_job(servers=2).run("callers.py", "native", *cases):
        assert "well done" in output
