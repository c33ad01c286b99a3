"""A store of real workers over real servers: values, order, errors, forks, ends."""

import json
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
PROFILED_BYTES = 60  # of cases.py's key
STORES = ["native", "dist_sync"]


@pytest.mark.parametrize("store", STORES)
def test_sums_and_order_of_two_workers(make_job: MakeJob, store: str) -> None:
    cases = ("identity", "barriers", "sums", "order", "in_place", "closed")
    outputs = make_job(servers=2).run("cases/cases.py", store, *cases)
    ranks = {line for out in outputs for line in out.splitlines() if line.startswith("rank")}
    assert ranks == {"rank 0 of 2", "rank 1 of 2"}
    for output in outputs:
        assert output.count("native back end carries the bytes (2 workers, 2 servers;") == 1


def test_the_profiler_of_servers_writes_their_requests_while_it_runs(make_job: MakeJob) -> None:
    job = make_job(servers=2)
    job.run("cases/cases.py", "dist_sync", "profiled", "closed")
    seen = []
    for rank in range(2):
        trace = json.loads((job.folder / f"rank{rank}_servers.json").read_text())
        assert trace["otherData"] == {"lost": "0"}
        seen += [e for e in trace["traceEvents"] if e["ph"] == "i"]
    # Three rounds of the only key; not its first value, nor three more while it paused.
    requests = [event for event in seen if event["args"]["bytes"] == PROFILED_BYTES]
    for rank in range(2):
        assert 3 <= sum(event["tid"] == rank for event in requests) < 6
    assert {event["name"] for event in requests} == {"pushpull"}
    assert len({event["args"]["key"] for event in requests}) == 1


def test_naive_engine(make_job: MakeJob) -> None:
    env = {"MXNET_ENGINE_TYPE": "NaiveEngine"}
    make_job(env=env).run("cases/cases.py", "native", "sums", "order", "in_place", "closed")


def test_names_as_keys_and_updaters(make_job: MakeJob) -> None:
    make_job().run("cases/cases.py", "native", "names", "updater", "optimizer")


def test_sparse_rows_and_half_precision(make_job: MakeJob) -> None:
    job = make_job(servers=2)
    job.run("cases/cases.py", "native", "sparse", "sparse_embeddings", "half", "codes_as_pushed")


def test_every_dtype_and_shape_with_three_workers(make_job: MakeJob) -> None:
    make_job(workers=3, servers=2).run(
        "cases/cases.py", "native", "dtypes", "shapes", "numpy_shapes"
    )


def test_bad_input_is_refused_and_loses_nothing(make_job: MakeJob) -> None:
    make_job().run("cases/cases.py", "native", "bad_input")


def test_work_that_needs_no_held_tensor_goes_on(make_job: MakeJob) -> None:
    make_job().run("cases/cases.py", "native", "held")


@pytest.mark.parametrize("store", STORES)
def test_a_forked_child_harms_no_process_and_data_loaders_work(
    make_job: MakeJob, store: str
) -> None:
    make_job().run("cases/cases.py", store, "forked_child", "fork")


@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_ends_early_finishes_its_round(make_job: MakeJob, store: str) -> None:
    make_job().run("cases/cases.py", store, "leave_early")
