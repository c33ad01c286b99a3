"""dist_async with optimizers that only Python has: the servers' processes make the updates."""

import functools
import signal
from typing import Callable

import pytest
from job import WORKERS, Job

MakeJob = Callable[..., Job]
SMALL = {"BYTESCHEDULER_PARTITION": "4KiB"}
# Where servers find my_optimizers.
FINDS = {"PYTHONPATH": str(WORKERS / "cases")}
TRUST = {"BYTESCHEDULER_TRUSTED_MODULES": "some_module, my_optimizers", **FINDS}


@pytest.fixture
def make_job(make_job: MakeJob) -> MakeJob:
    """Return a maker of jobs whose servers have MXNet before an optimizer comes."""
    return functools.partial(make_job, servers_have_mxnet=True)


def test_every_optimizer_updates_whole_keys_as_it_does_here(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=2, env={**SMALL, **TRUST})
    job.run("cases/hosted_cases.py", "optimizers", "noisy", "trusted", "late", "compressed")
    assert "updates weights by my_optimizers.Halfway" in job.servers[0].output()


def test_every_push_of_two_workers_is_in_the_weights_once(make_job: MakeJob) -> None:
    make_job(servers=2, env=SMALL).run("cases/hosted_cases.py", "exact")


def test_one_worker_may_set_the_optimizer_for_all(make_job: MakeJob) -> None:
    # In a job of its own: a worker that has set one before goes on to say its own rates.
    # Its server imports MXNet itself.
    job = make_job(servers_have_mxnet=False)
    job.run("cases/hosted_cases.py", "only_rank_0_sets")


def test_a_refused_optimizer_is_told_on_both_sides_and_the_job_goes_on(
    make_job: MakeJob,
) -> None:
    job = make_job(workers=1, env=FINDS)
    job.run("cases/hosted_cases.py", "refused_class", "refused_main")
    said = "refused an optimizer: the pickled optimizer names my_optimizers.Halfway"
    assert said in job.servers[0].output()


def test_pickles_can_be_refused_altogether(make_job: MakeJob) -> None:
    env = {"BYTESCHEDULER_PICKLES": "refuse"}
    job = make_job(workers=1, env=env, servers_have_mxnet=False)
    job.run("cases/hosted_cases.py", "refused_altogether")
    assert "refused an optimizer: this server loads no pickled" in job.servers[0].output()


def test_an_optimizer_that_fails_fails_the_job_with_key_and_exception(make_job: MakeJob) -> None:
    job = make_job(workers=1, env=TRUST)
    job.run_into("RuntimeError: three is too many", "cases/hosted_cases.py", "stumbles")
    assert 'an update of key {"key":"fc"' in job.servers[0].output()


def test_an_optimizer_that_never_returns_cannot_keep_its_server(make_job: MakeJob) -> None:
    env = {**TRUST, "BYTESCHEDULER_GRACE": "0"}
    job = make_job(workers=1, env=env, servers_have_mxnet=False)
    worker = job.start_worker("cases/hosted_cases.py", "endless")
    server = job.servers[0]
    server.wait_for_line("an endless update begins")
    server.signal(signal.SIGTERM)
    assert worker.wait() != 0
    assert "refused as it should" in worker.output(), worker.output()
    assert server.wait() == 143


def test_a_cut_key_fails_the_job_of_an_optimizer_of_whole_arrays(make_job: MakeJob) -> None:
    job = make_job(workers=1, env=SMALL)
    job.run_into("the optimizer updates whole arrays", "cases/hosted_cases.py", "cut")


def test_lazy_optimizers_update_the_rows_that_were_pushed_and_bad_rows_are_refused(
    make_job: MakeJob,
) -> None:
    make_job(workers=1, servers=2).run("cases/rows_cases.py", "dist_async", "lazy", "bad_input")


def test_rows_of_two_workers_are_in_the_weights_once_and_a_trainer_learns_embeddings(
    make_job: MakeJob,
) -> None:
    make_job(servers=2).run("cases/rows_cases.py", "dist_async", "exact", "gluon")


@pytest.mark.parametrize("store", ["dist_async", "dist_sync"])
def test_a_trainer_learns_row_sparse_weights(make_job: MakeJob, store: str) -> None:
    make_job(servers=2).run("cases/rows_cases.py", store, "gluon_row_sparse")
