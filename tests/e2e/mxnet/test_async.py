"""dist_async: servers update with every push as it comes."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]


def test_every_optimizer_updates_as_mxnets_own(make_job: MakeJob) -> None:
    env = {"BYTESCHEDULER_PARTITION": "4KiB"}
    make_job(workers=1, servers=2, env=env).run("cases/async_cases.py", "optimizers")


def test_every_push_of_two_workers_is_in_the_weights_once(make_job: MakeJob) -> None:
    env = {"BYTESCHEDULER_PARTITION": "4KiB"}
    job = make_job(servers=2, env=env)
    for output in job.run("cases/async_cases.py", "exact", "coded", "rank_1_leaves"):
        assert "native back end carries the bytes (2 workers, 2 servers;" in output


def test_naive_engine(make_job: MakeJob) -> None:
    make_job(env={"MXNET_ENGINE_TYPE": "NaiveEngine"}).run("cases/async_cases.py", "exact")


def test_one_worker_may_set_the_optimizer_for_all(make_job: MakeJob) -> None:
    make_job().run("cases/async_cases.py", "only_rank_0_sets")


@pytest.mark.parametrize("stock", [False, True], ids=["native", "stock"])
def test_pushes_of_two_bits_are_in_the_weights_once(make_job: MakeJob, stock: bool) -> None:
    """On stock servers it is their own compression: it means the same."""
    env = {"BYTESCHEDULER_PARTITION": "4KiB"}
    make_job(servers=2, stock=stock, env=env).run("cases/async_cases.py", "compressed")


def test_a_gluon_trainer_learns(make_job: MakeJob) -> None:
    make_job().run("cases/async_cases.py", "gluon")


def test_a_module_learns(make_job: MakeJob) -> None:
    make_job().run("cases/async_cases.py", "module")


def test_bad_input_is_refused_and_loses_nothing(make_job: MakeJob) -> None:
    make_job(workers=1).run("cases/async_cases.py", "bad_input")


def test_a_push_without_an_optimizer_fails_the_job_and_says_so(make_job: MakeJob) -> None:
    make_job(workers=1).run_into("no optimizer is set", "cases/async_cases.py", "no_optimizer")


def test_bounded_staleness_holds_a_fast_worker_back(make_job: MakeJob) -> None:
    make_job(env={"BYTESCHEDULER_MAX_STALENESS": "2"}).run("cases/async_cases.py", "bounded")
