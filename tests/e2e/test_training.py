"""Weights after 50 steps are those of stock MXNet, whose processes run here as well."""

import pathlib
from typing import Callable, Dict, List

import numpy as np
import pytest
from job import Job

MakeJob = Callable[..., Job]
Weights = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]


def train(job: Job, folder: pathlib.Path, *arguments: str, workers: int) -> "List[Weights]":
    job.run("train.py", *arguments, str(folder / arguments[0]))
    files = [folder / f"{arguments[0]}-{rank}.npz" for rank in range(workers)]
    return [dict(np.load(file)) for file in files]


def assert_equal(left: Weights, right: Weights) -> None:
    assert left.keys() == right.keys()
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name], err_msg=name)


@pytest.mark.parametrize(
    ("api", "optimizer"),
    [("gluon", "sgd"), ("gluon-local-update", "adam"), ("module", "adam")],
)
def test_two_workers_train_as_stock_bit_for_bit(
    make_job: MakeJob, tmp_path: pathlib.Path, api: str, optimizer: str
) -> None:
    stock = train(make_job(stock=True), tmp_path, "stock", api, optimizer, workers=2)
    ours = train(make_job(servers=2), tmp_path, "scheduled", api, optimizer, workers=2)
    assert_equal(stock[0], stock[1])
    for weights in ours:
        assert_equal(stock[0], weights)


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
