"""What becomes of an optimizer that rank 0 alone sets: everyone has it, or everyone is told."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
SOON = {"BYTESCHEDULER_STRAGGLER_TIMEOUT": "4s"}


@pytest.mark.parametrize("stock", [False, True], ids=["native", "stock servers"])
def test_after_a_barrier_every_worker_has_the_optimizer_of_rank_0(
    make_job: MakeJob, stock: bool
) -> None:
    store = "dist_sync" if stock else "native"
    for output in make_job(stock=stock).run("cases/one_optimizer.py", store, "rank_0_alone"):
        assert "well done" in output


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("without_a_barrier", "has set an optimizer that worker 1 does not have"),
        ("without_a_barrier_in_one_step", "has set an optimizer that worker 1 does not have"),
        ("pushed_too_early", "worker 0 has set"),
        ("other_batch_sizes", "in learning rate, weight decay, momentum or rescale_grad"),
        ("one_short_batch", "in learning rate, weight decay, momentum or rescale_grad"),
        ("states_of_one", "or states were loaded on one only"),
        ("momentum_of_one", "from push 6 on, and worker 1 has not set that, so what it pushes"),
        ("unregistered", "Unregistered cannot be handed to the other workers"),
    ],
)
def test_where_it_cannot_be_shared_every_worker_says_so(
    make_job: MakeJob, case: str, text: str
) -> None:
    job = make_job(env=SOON if case == "momentum_of_one" else {})
    for _ in range(2):
        job.start_worker("cases/one_optimizer.py", "native", case)
    assert [worker.wait() for worker in job.workers] == [1, 1], job.all_output()
    for worker in job.workers:
        assert text in worker.output(), job.all_output()


def test_each_worker_counts_by_its_own_batch_size(make_job: MakeJob) -> None:
    for output in make_job().run("cases/one_optimizer.py", "native", "own_batch_sizes"):
        assert "well done" in output


def test_an_optimizer_that_draws_random_numbers_is_refused_and_another_taken(
    make_job: MakeJob,
) -> None:
    for output in make_job().run("cases/one_optimizer.py", "native", "noise_of_its_own"):
        assert "well done" in output


def test_on_stock_servers_half_precision_of_rank_0_alone_is_no_endless_wait(
    make_job: MakeJob,
) -> None:
    job = make_job(stock=True)
    for _ in range(2):
        job.start_worker("cases/one_optimizer.py", "dist_sync", "half_without_a_barrier")
    assert [worker.wait() for worker in job.workers] == [1, 1], job.all_output()
    for worker in job.workers:
        assert "has set an optimizer that worker 1 does not have" in worker.output()
