"""Workers that no launcher of ours has started find out which back end suits the servers."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
AUTO = {"BYTESCHEDULER_BACKEND": "auto"}
NATIVE = "because the servers are ours"
KVSTORE = "store carries the bytes, scheduled (2 workers, 1 stock server"


@pytest.mark.parametrize(
    ("how", "total"), [("wrapped", "3.0"), ("name", "3.0"), ("trainer", "2.0")]
)
def test_on_our_servers_it_is_the_native_one(make_job: MakeJob, how: str, total: str) -> None:
    for output in make_job().run("cases/one_line.py", how, env=AUTO):
        assert NATIVE in output
        assert f"sum {total}" in output


@pytest.mark.parametrize("stock_scheduler", [True, False])
@pytest.mark.parametrize("how", ["wrapped", "name"])
def test_on_stock_servers_it_is_the_kvstore_one(
    make_job: MakeJob, how: str, stock_scheduler: bool
) -> None:
    job = make_job(stock_scheduler=stock_scheduler, stock_servers=1)
    for output in job.run("cases/one_line.py", how, env=AUTO):
        assert KVSTORE in output
        assert "sum 3.0" in output


def test_a_worker_that_wraps_nothing_is_named_once(make_job: MakeJob) -> None:
    job = make_job()
    job.run("cases/one_line.py", "stock", env=AUTO)
    said = "uses MXNet's own store: not scheduled; add kvs = ScheduledKVS(kvs)"
    assert job.all_output().count(said) == 2


@pytest.mark.parametrize("backend", ["native", "auto"])
def test_two_dist_stores_of_a_process_are_native(make_job: MakeJob, backend: str) -> None:
    env = {"BYTESCHEDULER_BACKEND": backend}
    for output in make_job().run("cases/two_dist_stores.py", "dist_sync,dist_sync", env=env):
        assert "stores dist_sync dist_sync 2.0 4.0" in output


def test_two_dist_stores_of_a_process_on_stock_servers_are_an_error(make_job: MakeJob) -> None:
    job = make_job(workers=1, stock_servers=1, stock_scheduler=True)
    job.start_worker("cases/two_dist_stores.py", "dist_sync,dist_sync", env=AUTO)
    job.workers[0].wait_for_line("stock servers already, which take one of each process")
