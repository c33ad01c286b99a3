"""A store of real workers over real servers: values, order, errors, forks, ends."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
STORES = ["native", "dist_sync"]


@pytest.mark.parametrize("store", STORES)
def test_sums_of_two_workers(make_job: MakeJob, store: str) -> None:
    outputs = make_job(servers=2).run("cases.py", store, "identity", "sums")
    ranks = {line for out in outputs for line in out.splitlines() if line.startswith("rank")}
    assert ranks == {"rank 0 of 2", "rank 1 of 2"}
    for output in outputs:
        assert output.count("native back end carries the bytes (2 workers, 2 servers;") == 1


def test_program_order_of_one_key_holds_without_waiting(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "order", "names")


def test_every_dtype_and_shape(make_job: MakeJob) -> None:
    make_job(workers=3, servers=2).run("cases.py", "native", "dtypes")
    make_job(workers=2, servers=2).run("cases.py", "native", "shapes")


def test_updaters_run_on_every_worker(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "updater")
    make_job().run("cases.py", "native", "optimizer")


def test_bad_input_is_refused_and_loses_nothing(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "bad_input")


@pytest.mark.parametrize("case", ["sums", "order"])
def test_naive_engine(make_job: MakeJob, case: str) -> None:
    make_job(env={"MXNET_ENGINE_TYPE": "NaiveEngine"}).run("cases.py", "native", case)


@pytest.mark.parametrize("store", STORES)
def test_a_closed_store_is_of_no_use(make_job: MakeJob, store: str) -> None:
    make_job().run("cases.py", store, "closed")


def test_what_needs_no_held_tensor_goes_on(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "held")


@pytest.mark.parametrize("store", STORES)
def test_data_loaders_fork_in_the_middle_of_training(make_job: MakeJob, store: str) -> None:
    make_job().run("cases.py", store, "fork")


@pytest.mark.parametrize("store", STORES)
def test_a_forked_child_cannot_use_the_store(make_job: MakeJob, store: str) -> None:
    make_job().run("cases.py", store, "forked_child")


@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_ends_early_finishes_its_round(make_job: MakeJob, store: str) -> None:
    make_job().run("cases.py", store, "leave_early")
