"""The job of a process: joined once, left once, and the functions that ask about it."""

from typing import Any, List

import pytest
from fake_engine import FakeFramework, FakeOperations, FakeWorker

from bytescheduler._session.basics import Basics
from bytescheduler._session.job import Job, Joined
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.session import Session
from bytescheduler.errors import ConfigError


def test_the_job_is_joined_once() -> None:
    job: Job[Joined[RoundSession]] = Job("a module", lambda: Joined(None))
    with pytest.raises(ValueError, match=r"a module is not initialised: call init\(\) first"):
        job.get()
    job.join()
    job.join()
    assert job.get().size == 1
    job.leave()
    job.leave()
    with pytest.raises(ValueError, match="has left the job"):
        job.get()


def test_a_job_that_was_left_may_be_joined_again() -> None:
    joined: List[Joined[RoundSession]] = []

    def join() -> Joined[RoundSession]:
        joined.append(Joined(None))
        return joined[-1]

    job = Job("a module", join)
    for _ in range(2):
        job.join()
        assert job.get() is joined[-1]
        job.leave()
        assert not job.is_joined
    assert len(joined) == 2


class Optimizer:
    """Has updates to make."""

    def __init__(self, order: List[str]) -> None:
        self.order = order

    def flush(self) -> None:
        self.order.append("flushed")


def test_a_job_that_ends_makes_the_updates_first() -> None:
    job: Job[Joined[RoundSession]] = Job("a module", lambda: Joined(None))
    order: List[str] = []
    job.flush()  # nothing is joined
    job.join()
    job.get().unflushed.add(Optimizer(order))
    job.leave()
    assert order == ["flushed"]


def test_a_job_that_ends_by_a_refused_call_waits_for_no_update() -> None:
    job: Job[Joined[RoundSession]] = Job("a module", lambda: Joined(None))
    order: List[str] = []
    job.join()
    job.get().unflushed.add(Optimizer(order))

    def train() -> None:
        try:
            raise ConfigError("refused", 1)
        finally:
            job.leave()

    with pytest.raises(ConfigError, match="refused"):
        train()
    assert order == []
    assert not job.is_joined


@pytest.mark.parametrize("unfinished", [0, 1])
def test_a_worker_that_leaves_early_makes_no_update_that_waits_long(
    unfinished: int,
) -> None:
    worker, operations = FakeWorker(), FakeOperations()
    operations.unfinished = unfinished
    session: Any = Session(worker, operations, FakeFramework())  # type: ignore[arg-type]
    joined: Joined[Any] = Joined(session)
    order: List[str] = []
    joined.unflushed.add(Optimizer(order))
    job = Job("a module", lambda: joined)
    job.join()

    def train() -> None:
        try:
            raise ValueError("my bug")
        finally:
            job.leave()

    with pytest.raises(ValueError, match="my bug"):
        train()
    assert operations.drained[0] == 10.0  # seconds
    assert order == ([] if unfinished else ["flushed"])
    assert worker.closed


def test_a_module_has_the_functions_of_its_job() -> None:
    basics = Basics(Job("a module", lambda: Joined(None)))
    assert not basics.initialized()
    basics.init(lazy=True)
    assert basics.initialized()
    assert (basics.rank(), basics.size(), basics.local_rank(), basics.local_size()) == (0, 1, 0, 1)
    basics.shutdown()
    assert not basics.initialized()
