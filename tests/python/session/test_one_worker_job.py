"""A session in a real job of one worker, without any framework."""

import contextlib
import ctypes
from typing import Iterator

import numpy as np
import pytest
from fake_engine import FakeFramework, FakeOperations, FrameworkError
from roles import role

from bytescheduler._native import Node, Worker
from bytescheduler._session.place import Place
from bytescheduler._session.session import Session
from bytescheduler.errors import ConfigError


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the other nodes of a job whose worker is this process."""
    with contextlib.ExitStack() as nodes:
        scheduler = Node.start(role("scheduler", 0, workers=1))
        nodes.callback(scheduler.close)
        port = scheduler.port
        nodes.callback(Node.start(role("server", port, workers=1)).close)
        for name, value in role("worker", port, workers=1).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BYTESCHEDULER_TUNING", "off")
        yield


def make(worker: Worker) -> Session:
    return Session(worker, FakeOperations(), FakeFramework())


@pytest.mark.usefixtures("job")
def test_it_joins_adds_up_numbers_and_leaves() -> None:
    place: Place[Session] = Place()
    session = place.join(make, FakeFramework(), job="this one")
    assert (session.rank, session.num_workers, session.num_servers) == (0, 1, 1)
    assert place.session() is session
    numbers = np.array([1.5, -2.0])
    first = (ctypes.c_double * 2)()
    float64 = 1
    session.declare([(7, float64, ctypes.addressof(first), 16)], owner=first)
    assert session.sum(7, numbers).tolist() == [1.5, -2.0]
    session.watch(7, numbers, lambda total: None if total[0] == 1.5 else "another sum")
    session.judge()
    session.barrier()
    with pytest.raises(ConfigError, match="partition"):
        session.retune(1, 1)
    session.watch(7, numbers, lambda total: f"the sum is {total[1]}")
    with pytest.raises(FrameworkError, match="the sum is -2.0"):
        session.judge()
    session.close()  # the failure was told
    with pytest.raises(FrameworkError, match="has left the job of this one"):
        place.join(make, FakeFramework(), job="this one")
