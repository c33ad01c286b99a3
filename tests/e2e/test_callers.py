"""What calls a store in MXNet trains over ours as one process trains alone."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]


@pytest.mark.parametrize(
    "cases",
    [
        ["trainers", "another_seed_on_each_worker", "half_precision", "devices", "accumulation"],
        ["many_stores", "sparse_embedding", "states", "states_of_an_updater_in_gluon"],
        ["fit", "buckets", "feed_forward"],
        ["sparse_module"],
    ],
    ids=lambda cases: cases[0],
)
def test_two_workers_train_as_one_process_alone(make_job: MakeJob, cases: "list[str]") -> None:
    for output in make_job(servers=2).run("callers.py", "native", *cases):
        assert "well done" in output


@pytest.mark.parametrize(
    "case",
    [
        "another_seed_on_each_worker",
        "half_precision",
        "sparse_embedding",
        "states",
        "buckets",
        "sparse_module",
    ],
)
def test_on_stock_servers_too(make_job: MakeJob, case: str) -> None:
    for output in make_job(stock=True).run("callers.py", "stock", case):
        assert "store carries the bytes, scheduled (2 workers, 1 stock server;" in output
        assert "well done" in output
