"""Two bits an element: sums and weights are those of stock MXNet, whose processes run here too."""

import pathlib
from typing import Callable

import pytest
import two_bit_model
from job import Job
from trained import Sums, Weights, assert_equal, sums, train

MakeJob = Callable[..., Job]
StockWeights = Callable[[str, str], Weights]


def definition() -> Sums:
    """Return what two workers must get; the first test shows that stock gives it."""
    return {
        f"{step}/{key}": values
        for step, of_step in enumerate(two_bit_model.expected(2))
        for key, values in of_step.items()
    }


def test_sums_equal_stock_and_the_definition_bit_for_bit(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    stock = sums(make_job(stock=True), tmp_path, "stock")
    pushed = sums(make_job(), tmp_path, "push")
    push_pulled = sums(make_job(servers=2), tmp_path, "pushpull")
    late = sums(make_job(servers=2), tmp_path, "late")
    expected = definition()
    assert len(expected) == two_bit_model.ROUNDS * len(two_bit_model.SHAPES)
    for one in (*stock, *pushed, *push_pulled, *late):
        assert_equal(expected, one)


@pytest.mark.parametrize(
    ("api", "optimizer"),
    [("gluon", "sgd"), ("gluon-local-update", "adam"), ("module", "sgd")],
)
def test_two_workers_train_as_stock_bit_for_bit(
    make_job: MakeJob,
    tmp_path: pathlib.Path,
    stock_weights: StockWeights,
    api: str,
    optimizer: str,
) -> None:
    arguments = (f"{api}-compressed", optimizer)
    ours = train(make_job(servers=2), tmp_path, "scheduled", *arguments, workers=2)
    for weights in ours:
        assert_equal(stock_weights(*arguments), weights)


@pytest.mark.parametrize(
    ("store", "when"),
    [("native", "late"), ("dist_sync", "late"), ("dist_sync", "early")],
    ids=["our servers", "stock servers", "stock servers, no key yet"],
)
def test_workers_that_disagree_are_told_both_thresholds(
    make_job: MakeJob, store: str, when: str
) -> None:
    job = make_job(stock=store == "dist_sync")
    workers = [
        job.start_worker("cases/cases.py", store, f"thresholds_differ_{when}") for _ in range(2)
    ]
    for worker in workers:
        assert worker.wait() != 0
        output = worker.output()
        assert "MXNetError" in output
        assert "threshold 0.25" in output
        assert "threshold 0.5" in output
        assert "set gradient compression alike on all workers" in output


def test_on_stock_servers_the_wrapped_store_compresses(
    make_job: MakeJob, tmp_path: pathlib.Path, stock_weights: StockWeights
) -> None:
    """Numbers and names as keys, those that are in use, and pushpull, which stock refuses."""
    for when in ("pushpull", "late"):
        for one in sums(make_job(stock=True, servers=2), tmp_path, when):
            assert_equal(definition(), one)
    arguments = ("module-compressed", "sgd")
    for weights in train(make_job(stock=True), tmp_path, "scheduled", *arguments, workers=2):
        assert_equal(stock_weights(*arguments), weights)


def test_on_stock_servers_it_may_be_set_once_an_optimizer_has_updated(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    """Momentum of before goes on; keys that stock servers would die of can still be read."""
    stock = sums(make_job(stock=True), tmp_path, "stock-updated")
    ours = sums(make_job(stock=True), tmp_path, "updated")
    for one in (*stock[1:], *ours):
        assert_equal(stock[0], one)
