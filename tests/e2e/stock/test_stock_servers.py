"""Our store in the workers of a job on MXNet's own scheduler node and servers."""

import pathlib
import re
from typing import Callable, Dict, Optional

import pytest
from job import Job
from trained import Weights, assert_equal, train

MakeJob = Callable[..., Job]
StockWeights = Callable[[str, str], Weights]
# A piece of each tensor and one piece in flight to each server.
SMALL = {"BYTESCHEDULER_PARTITION": "4096", "BYTESCHEDULER_CREDIT": "1"}
# Long enough for a start on a loaded machine, where nothing may be lost yet.
BRIEF = {"BYTESCHEDULER_STRAGGLER_TIMEOUT": "4s"}
SOON_S = 60.0
NAIVE = {"MXNET_ENGINE_TYPE": "NaiveEngine"}


@pytest.mark.parametrize("env", [{}, SMALL], ids=["default", "small pieces"])
def test_sums_and_order_of_two_workers(make_job: MakeJob, env: "Dict[str, str]") -> None:
    job = make_job(servers=2, stock=True, env=env)
    cases = ("identity", "barriers", "sums", "order", "floats", "closed")
    outputs = job.run("cases/cases.py", "dist_sync", *cases)
    line = "MXNet's dist_sync store carries the bytes, scheduled (2 workers, 2 stock servers;"
    for output in outputs:
        assert output.count(line) == 1


def test_dist_device_sync_is_scheduled_too(make_job: MakeJob) -> None:
    job = make_job(servers=2, stock=True, env=SMALL)
    cases = ["sums", "order", "floats", "profiled", "closed"]
    for output in job.run("cases/cases.py", "dist_device_sync", *cases):
        assert "MXNet's dist_device_sync store carries the bytes, scheduled (" in output
    # The servers' own profiler wrote it, for rank 0.
    assert "traceEvents" in pathlib.Path(job.folder, "rank0_servers.json").read_text()


def test_dist_async_is_passed_on(make_job: MakeJob) -> None:
    for output in make_job(servers=2, stock=True).run("cases/async_cases.py", "exact"):
        assert "unscheduled: its servers update at each push" in output


def test_cases_that_pass_on_our_servers_pass_on_stock_servers_too(make_job: MakeJob) -> None:
    cases = ["names+updater", "optimizer", "sparse", "bad_input", "held"]
    first, *others = [make_job(servers=2, stock=True, env=SMALL) for _ in cases]
    for output in first.run_with(others, "cases/cases.py", "dist_sync", cases):
        assert output.count("well done") == len(cases)


def test_naive_engine(make_job: MakeJob) -> None:
    make_job(stock=True, env=NAIVE).run(
        "cases/cases.py", "dist_sync", "sums", "order", "noted", "closed"
    )


def test_every_shape_with_three_workers(make_job: MakeJob) -> None:
    job = make_job(workers=3, servers=2, stock=True, env={"BYTESCHEDULER_PARTITION": "64KiB"})
    job.run("cases/cases.py", "dist_sync", "shapes", "numpy_shapes")


@pytest.mark.parametrize("scheduling", ["0", "1"])
def test_opposite_orders_and_a_credit_of_one_piece_do_not_wait_for_each_other(
    make_job: MakeJob, scheduling: str
) -> None:
    job = make_job(stock=True, env={**SMALL, "BYTESCHEDULER_SCHEDULING": scheduling})
    job.run("cases/cases.py", "dist_sync", "opposite_orders")


def test_a_forked_child_harms_no_process_and_data_loaders_work(make_job: MakeJob) -> None:
    make_job(stock=True, env=SMALL).run("cases/cases.py", "dist_sync", "forked_child", "fork")


def test_a_worker_that_ends_early_finishes_its_round(make_job: MakeJob) -> None:
    make_job(stock=True).run("cases/cases.py", "dist_sync", "leave_early")


@pytest.mark.parametrize(
    ("api", "optimizer"), [("gluon", "sgd"), ("module", "adam"), ("svrg", "sgd")]
)
def test_two_workers_train_as_stock_bit_for_bit(
    make_job: MakeJob,
    tmp_path: pathlib.Path,
    stock_weights: StockWeights,
    api: str,
    optimizer: str,
) -> None:
    job = make_job(servers=2, stock=True, env=SMALL)
    ours = train(job, tmp_path, "scheduled", api, optimizer, workers=2)
    for weights in ours:
        assert_equal(stock_weights(api, optimizer), weights)


# -- somebody is lost: stock processes do not say so, so a deadline does ---------------------------


def test_a_silent_worker_is_an_error_after_the_deadline(make_job: MakeJob) -> None:
    job = make_job(stock=True, env=BRIEF)
    for _ in range(2):
        job.start_worker("cases/cases.py", "dist_sync", "silent_in_rank_1")
    end_of_one(job)
    pathlib.Path(job.folder, "done").touch()


@pytest.mark.parametrize("env", [BRIEF, {**BRIEF, **NAIVE}], ids=["threaded", "naive"])
def test_a_killed_worker_is_an_error_after_the_deadline(
    make_job: MakeJob, env: "Dict[str, str]"
) -> None:
    job = make_job(stock=True, env=env)
    start_training(job)
    job.workers[1].kill()
    end_of_one(job)


@pytest.mark.parametrize("ours", [False, True], ids=["stock", "ours"])
def test_a_killed_server_is_an_error_after_the_deadline(make_job: MakeJob, ours: bool) -> None:
    """A server of MXNet's own, or of ours under MXNet's own scheduler node: nobody says so.

    The workers alone are told to wait so briefly: the server of ours that is left would fail the
    job at the same moment, and end them while they say why they end.
    """
    job = make_job(stock=not ours, stock_scheduler=True, servers=2)
    start_training(job, BRIEF)
    job.servers[1].kill()
    if not ours:
        for worker in job.workers:
            assert_ends_and_says(job, worker.wait(SOON_S), worker.output())
        return
    end_of_one(job)
    for worker in job.workers:  # the server that is left may end the other first
        assert worker.wait(SOON_S) != 0, job.all_output()
    # It did not notice the loss of the other one, but does that of a worker.
    assert job.servers[0].wait(SOON_S) == 1, job.all_output()
    assert "lost worker" in job.servers[0].output()
    assert "lost server" not in job.all_output()


def test_a_worker_that_wraps_nothing_is_waited_for_and_then_an_error(make_job: MakeJob) -> None:
    job = make_job(stock=True, env={"BYTESCHEDULER_TIMEOUT": "8s"})
    for _ in range(2):
        job.start_worker("cases/cases.py", "dist_sync", "wraps_in_rank_1_only")
    first = job.wait_for_one(job.workers)
    pathlib.Path(job.folder, "done").touch()
    assert first.wait() == 1, job.all_output()
    output = first.output()
    assert "bytescheduler: waiting for every worker to wrap its dist store" in output
    assert "Timeout: not every worker has wrapped its dist store after 8 s" in output


def test_another_order_of_init_is_an_error(make_job: MakeJob) -> None:
    job = make_job(stock=True, env={"BYTESCHEDULER_STRAGGLER_TIMEOUT": "5s"})
    for _ in range(2):
        job.start_worker("cases/cases.py", "dist_sync", "another_order_of_init")
    assert [worker.wait(SOON_S) for worker in job.workers] == [1, 1], job.all_output()
    assert "said: this worker initialises key='b' of 60 bytes" in job.all_output()
    # The other worker waits for what this one would say of its optimizer.
    waited = "after 5 s still waiting for the push of another worker, or for a stock server"
    assert f"said: pull key='notes of optimizer' round=1 partition=0 to server 0: {waited}" in (
        job.all_output()
    )


def test_compression_that_one_worker_alone_sets_is_an_error_after_the_deadline(
    make_job: MakeJob,
) -> None:
    job = make_job(stock=True, env=BRIEF)
    for _ in range(2):
        job.start_worker("cases/cases.py", "dist_sync", "compresses_in_rank_0_only")
    first = job.wait_for_one(job.workers, SOON_S)
    pathlib.Path(job.folder, "done").touch()
    assert first.wait() == 1, job.all_output()
    assert "barrier: after 4 s not every worker has come" in first.output()


def start_training(job: Job, env: "Optional[Dict[str, str]]" = None) -> None:
    env = {"BYTESCHEDULER_BACKEND": "kvstore", **(env or {})}
    for _ in range(2):
        job.start_worker("cases/cases.py", "dist_sync", "train_for_long", env=env)
    for worker in job.workers:
        worker.wait_for_line("training")


def end_of_one(job: Job) -> None:
    """Expect that the one worker that is left ends by itself, with an error."""
    first = job.wait_for_one([worker for worker in job.workers if worker.running()], SOON_S)
    assert_ends_and_says(job, first.wait(SOON_S), first.output())


def assert_ends_and_says(job: Job, code: int, output: str) -> None:
    assert code == 1, job.all_output()
    said = (
        r"MXNetError: .*(pull|push) key=(\S+|'[^']+') round=\d+ partition=\d+ to server \d: "
        "after 4 s still "
    )
    assert re.search(said + "waiting for the push of another worker, or for a stock", output), (
        job.all_output()
    )
