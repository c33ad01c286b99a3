"""Weights after 50 steps are those of stock MXNet, whose processes run here as well."""

import pathlib
from typing import Callable

import numpy as np
import pytest
from job import Job
from trained import Weights, assert_equal, train

MakeJob = Callable[..., Job]
StockWeights = Callable[[str, str], Weights]


@pytest.mark.parametrize(
    ("api", "optimizer"),
    [("gluon", "sgd"), ("gluon-local-update", "adam"), ("module", "adam"), ("svrg", "sgd")],
)
def test_two_workers_train_as_stock_bit_for_bit(
    make_job: MakeJob,
    tmp_path: pathlib.Path,
    stock_weights: StockWeights,
    api: str,
    optimizer: str,
) -> None:
    ours = train(make_job(servers=2), tmp_path, "scheduled", api, optimizer, workers=2)
    for weights in ours:
        assert_equal(stock_weights(api, optimizer), weights)


@pytest.mark.parametrize("api", ["gluon", "module-compressed"])
def test_partitions_of_another_size_all_the_time_change_no_bit(
    make_job: MakeJob, tmp_path: pathlib.Path, stock_weights: StockWeights, api: str
) -> None:
    ours = train(make_job(servers=2), tmp_path, "cut-anew", api, "sgd", workers=2)
    for weights in ours:
        assert_equal(stock_weights(api, "sgd"), weights)


def test_four_workers_train_as_stock_to_rounding_and_agree(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    stock = train(make_job(workers=4, stock=True), tmp_path, "stock", "gluon", "sgd", workers=4)
    job = make_job(workers=4, servers=2)
    ours = train(job, tmp_path, "scheduled", "gluon", "sgd", workers=4)
    for weights in ours:
        assert_equal(ours[0], weights)
        for name, values in weights.items():
            np.testing.assert_allclose(values, stock[0][name], rtol=1e-3, atol=1e-5, err_msg=name)
