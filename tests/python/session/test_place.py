"""A process takes a place in a job once; later owners share it."""

import gc
from typing import List, Tuple

import pytest
from fake_engine import FakeFramework, FakeOperations, FakeWorker, FrameworkError
from inline_snapshot import snapshot

from bytescheduler._session import place as places
from bytescheduler._session.place import Place
from bytescheduler._session.session import Session


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> "List[Tuple[int, FakeWorker]]":
    """Return the workers that are opened, each with the rank that was wanted."""
    opened: List[Tuple[int, FakeWorker]] = []

    class Opener:
        @staticmethod
        def open(wanted_rank: int) -> FakeWorker:
            opened.append((wanted_rank, FakeWorker()))
            return opened[-1][1]

    monkeypatch.setattr(places, "Worker", Opener)
    return opened


def join(place: "Place[Session]", **options: object) -> Session:
    framework = FakeFramework()
    return place.join(
        lambda worker: Session(worker, FakeOperations(), framework),
        framework,
        **options,  # type: ignore[arg-type]
    )


def test_an_empty_place_is_shared_with_no_owner(workers: "List[Tuple[int, FakeWorker]]") -> None:
    place: Place[Session] = Place()
    assert place.shared() is None
    session = join(place)
    assert place.shared() is session
    session.close()
    assert session.is_open  # the other owner is left
    session.close()
    assert place.shared() is None
    assert len(workers) == 1


def test_later_owners_share_the_session(workers: "List[Tuple[int, FakeWorker]]") -> None:
    place: Place[Session] = Place()
    assert place.session() is None
    first = join(place, wanted_rank=3)
    assert place.session() is first
    assert join(place) is first
    assert [rank for rank, _ in workers] == [3]
    first.close()
    assert not workers[0][1].closed
    first.close()
    assert workers[0][1].closed
    assert place.session() is None


def test_a_worker_may_be_opened_in_another_way(workers: "List[Tuple[int, FakeWorker]]") -> None:
    place: Place[Session] = Place()
    own = FakeWorker()
    join(place, open_worker=lambda: own).close()
    assert own.closed
    assert workers == []


def test_a_job_that_was_left_is_not_joined_again(workers: "List[Tuple[int, FakeWorker]]") -> None:
    place: Place[Session] = Place()
    join(place, job="10.1.2.3:9000").close()
    with pytest.raises(FrameworkError, match="10.1.2.3:9000") as raised:
        join(place, job="10.1.2.3:9000")
    assert str(raised.value) == snapshot(
        "this process has left the job of 10.1.2.3:9000: its last thing was closed, by close() or "
        "at the end of a with block; make the next thing before that"
    )
    join(place, job="10.1.2.3:9001").close()  # another job
    for _ in range(2):
        join(place).close()  # no job that one can leave
    assert len(workers) == 4


def test_a_place_keeps_no_session_alive(workers: "List[Tuple[int, FakeWorker]]") -> None:
    place: Place[Session] = Place()
    session = join(place)
    session.close()
    del session
    gc.collect()
    assert place.session() is None


def test_a_session_that_cannot_be_made_gives_the_worker_back(
    workers: "List[Tuple[int, FakeWorker]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    drains: List[int] = []
    monkeypatch.setattr(
        FakeWorker, "close", lambda self, *, drain_ms=10000: drains.append(drain_ms)
    )

    def make(worker: object) -> Session:
        raise KeyError("no plug-in")

    place: Place[Session] = Place()
    with pytest.raises(KeyError, match="no plug-in"):
        place.join(make, FakeFramework())
    assert drains == [0]
    assert place.session() is None
