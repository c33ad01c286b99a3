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
        ["fit", "resume", "buckets", "feed_forward"],
        ["sparse_module"],
    ],
    ids=lambda cases: cases[0],
)
def test_two_workers_train_as_one_process_alone(make_job: MakeJob, cases: "list[str]") -> None:
    for output in make_job(servers=2).run("cases/callers.py", "native", *cases):
        assert "well done" in output


@pytest.mark.parametrize(
    "cases",
    [
        ["trainer_of_its_own_mind", "another_seed_on_each_worker", "half_precision", "states"],
        ["devices_updated_by_the_store", "devices_updated_by_gluon", "accumulation"],
        ["sparse_embedding", "sparse_module", "buckets", "feed_forward"],
        ["fit", "resume"],
    ],
    ids=lambda cases: cases[0],
)
def test_on_stock_servers_too(make_job: MakeJob, cases: "list[str]") -> None:
    first, *others = [make_job(stock=True) for _ in cases]
    for output in first.run_with(others, "cases/callers.py", "stock", cases):
        line = "store carries the bytes, scheduled (2 workers, 1 stock server;"
        assert output.count(line) == len(cases)
        assert output.count("well done") == len(cases)
