"""What jobs of train.py and compression.py end with: weights, or sums, of every worker."""

import pathlib
from typing import Dict, List

import numpy as np
from job import Job

Weights = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]
Sums = Weights


def train(job: Job, folder: pathlib.Path, *arguments: str, workers: int) -> "List[Weights]":
    job.run("cases/train.py", *arguments, str(folder / arguments[0]))
    files = [folder / f"{arguments[0]}-{rank}.npz" for rank in range(workers)]
    return [dict(np.load(file)) for file in files]


def sums(job: Job, folder: pathlib.Path, store: str) -> "List[Sums]":
    job.run("cases/compression.py", store, str(folder / store))
    return [dict(np.load(folder / f"{store}-{rank}.npz")) for rank in range(2)]


def assert_equal(left: Weights, right: Weights) -> None:
    assert left.keys() == right.keys()
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name], err_msg=name)
