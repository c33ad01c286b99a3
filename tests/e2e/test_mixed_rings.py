"""Jobs in which some roles are MXNet's own and some are ours."""

from typing import Callable

import pytest
import stock_model
from job import Job
from test_stock_workers import CUT, SOON_S, assert_same, results_of

MakeJob = Callable[..., Job]
WANTED = {**stock_model.sums(stock_model.FLOATS), **stock_model.sums_of_pushpull()}


@pytest.mark.parametrize("stock_servers", [0, 1])
def test_a_stock_scheduler_node_with_servers_of_ours(make_job: MakeJob, stock_servers: int) -> None:
    job = make_job(servers=2, stock_scheduler=True, stock_servers=stock_servers, env=CUT)
    for got in results_of(job, "dense", "pushpull"):
        assert_same(got, WANTED)
    for server in job.servers[stock_servers:]:
        assert "is MXNet's own: it tells nobody who is lost" in server.output()


@pytest.mark.parametrize("stock_servers", [1, 2])
def test_our_scheduler_node_with_stock_servers(make_job: MakeJob, stock_servers: int) -> None:
    job = make_job(servers=2, stock_servers=stock_servers, env=CUT)
    for got in results_of(job, "dense", "pushpull"):
        assert_same(got, WANTED)


def test_who_comes_late_or_stays_behind_does_not_wait_for_ever(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=2, stock_servers=1)
    worker = job.start_worker("stock_worker.py", "dist_sync", "", "train_for_long")
    worker.wait_for_line("training")
    late = job.start_worker("stock_worker.py", "dist_sync", "", "train_for_long")
    assert late.wait(SOON_S) != 0
    assert "came too late: the job has all its nodes already" in job.processes[0].output()
    assert worker.running(), worker.output()
    worker.kill()
    for process in job.processes:
        assert process.wait(SOON_S) != 0, job.all_output()
    assert "lost worker 0" in job.processes[0].output()


@pytest.mark.parametrize(("stock_scheduler", "stock_servers"), [(True, 1), (False, 1), (False, 0)])
def test_our_store_over_the_stock_one_in_any_ring(
    make_job: MakeJob, stock_scheduler: bool, stock_servers: int
) -> None:
    job = make_job(servers=2, stock_scheduler=stock_scheduler, stock_servers=stock_servers)
    env = {"BYTESCHEDULER_BACKEND": "kvstore", "BYTESCHEDULER_PARTITION": "4096"}
    for output in job.run("cases.py", "dist_sync", "sums", "order", "floats", "closed", env=env):
        assert "MXNet's dist_sync store carries the bytes, scheduled (2 workers" in output
