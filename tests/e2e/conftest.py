"""Each test gets a maker of jobs that ends what it made, and what stock MXNet trains."""

import contextlib
import functools
import pathlib
from typing import Callable, Iterator, List

import pytest
from job import Job
from pulled import CASES, CUT, Results, results_of
from trained import Weights, assert_equal, train


@pytest.fixture
def make_job(tmp_path: pathlib.Path) -> "Iterator[Callable[..., Job]]":
    jobs: List[Job] = []
    with contextlib.ExitStack() as stack:

        def make(**options: object) -> Job:
            folder = tmp_path / str(len(jobs) + 1)
            folder.mkdir()
            jobs.append(stack.enter_context(Job(folder, **options)))  # type: ignore[arg-type]
            return jobs[-1]

        yield make
    for job in jobs:
        print(job.all_output())  # shown where the test failed


@pytest.fixture(scope="session")
def stock_weights(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[str, str], Weights]":
    """What two workers of MXNet's own cluster train, by API and optimizer: one job for each."""

    @functools.lru_cache(maxsize=None)
    def weights(api: str, optimizer: str) -> Weights:
        folder = tmp_path_factory.mktemp("stock")
        with Job(folder, stock=True) as job:
            both = train(job, folder, "stock", api, optimizer, workers=2)
        assert_equal(*both)
        return both[0]

    return weights


@pytest.fixture(scope="session")
def stock_results(
    tmp_path_factory: pytest.TempPathFactory,
) -> "Callable[[str], List[Results]]":
    """What each of two workers of MXNet's own cluster pulls in `CASES`, by the store's name."""

    @functools.lru_cache(maxsize=None)
    def results(store: str) -> "List[Results]":
        with Job(tmp_path_factory.mktemp("pulled"), stock=True, servers=2, env=CUT) as job:
            return results_of(job, *CASES, store=store)

    return results
