"""A store of real workers over real servers: values, order, errors, forks, ends."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
STORES = ["native", "dist_sync"]


@pytest.mark.parametrize("store", STORES)
def test_sums_and_order_of_two_workers(make_job: MakeJob, store: str) -> None:
    outputs = make_job(servers=2).run("cases.py", store, "identity", "sums", "order", "closed")
    ranks = {line for out in outputs for line in out.splitlines() if line.startswith("rank")}
    assert ranks == {"rank 0 of 2", "rank 1 of 2"}
    for output in outputs:
        assert output.count("native back end carries the bytes (2 workers, 2 servers;") == 1


def test_the_profiler_of_servers_is_mxnets_own(make_job: MakeJob) -> None:
    """Ours take its commands and write no file of it; theirs is BYTESCHEDULER_TIMELINE."""
    job = make_job()
    job.run("cases.py", "dist_sync", "profiled", "closed")
    assert not list(job.folder.glob("*servers.json"))


def test_naive_engine(make_job: MakeJob) -> None:
    env = {"MXNET_ENGINE_TYPE": "NaiveEngine"}
    make_job(env=env).run("cases.py", "native", "sums", "order", "closed")


def test_names_as_keys_and_updaters(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "names", "updater", "optimizer")


def test_sparse_rows_and_half_precision(make_job: MakeJob) -> None:
    job = make_job(servers=2)
    job.run("cases.py", "native", "sparse", "sparse_embeddings", "half")


def test_every_dtype_and_shape_with_three_workers(make_job: MakeJob) -> None:
    make_job(workers=3, servers=2).run("cases.py", "native", "dtypes", "shapes", "numpy_shapes")


def test_bad_input_is_refused_and_loses_nothing(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "bad_input")


def test_what_needs_no_held_tensor_goes_on(make_job: MakeJob) -> None:
    make_job().run("cases.py", "native", "held")


@pytest.mark.parametrize("store", STORES)
def test_a_forked_child_harms_nobody_and_data_loaders_work(make_job: MakeJob, store: str) -> None:
    make_job().run("cases.py", store, "forked_child", "fork")


@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_ends_early_finishes_its_round(make_job: MakeJob, store: str) -> None:
    make_job().run("cases.py", store, "leave_early")
