"""Workers compare their rounds: another number, or another end, is an error."""

import ctypes
from typing import Iterator, List, Tuple

import pytest
from fake_engine import FakeWorker

from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.tally import CROSSES, SUMS, Tally
from bytescheduler.errors import UsageError


class Pending:
    """A round of two workers; the other one adds `others` to the vector of this one."""

    def __init__(self, where: Tuple[int, int, int], others: List[int]) -> None:
        self._send, self._recv, self._size = where
        self._others = others

    def wait(self) -> None:
        vector = ctypes.c_int32 * (self._size // 4)
        mine, total = vector.from_address(self._send), vector.from_address(self._recv)
        total[:] = [one + other for one, other in zip(mine, self._others)]


class Summing(FakeWorker):
    """A worker of two."""

    def __init__(self) -> None:
        super().__init__()
        self.num_workers = 2
        self.others: List[int] = []

    def start_push_pull(self, key: int, *where: int, **how: object) -> Pending:
        send, recv, size = where
        return Pending((send, recv, size), self.others)


@pytest.fixture
def worker() -> Summing:
    return Summing()


@pytest.fixture
def session(worker: Summing) -> Iterator[RoundSession]:
    made = RoundSession(worker)  # type: ignore[arg-type]
    yield made
    worker.failure = None
    made.close()


def test_a_parameter_is_used_if_any_worker_has_its_gradient(
    worker: Summing, session: RoundSession
) -> None:
    tally = Tally(session, 7, 3)
    worker.others = [1, 1, 0, 0, 0, 0, 1, 0, 0, 0]
    tally.start(CROSSES, [True, False, False])
    assert [tally.is_used(index) for index in range(3)] == [True, True, False]


def test_workers_in_different_rounds_are_an_error(worker: Summing, session: RoundSession) -> None:
    tally = Tally(session, 7, 1)
    worker.others = [2, 1, 0, 0, 0, 1, 0, 0]
    tally.start(CROSSES, [True])
    with pytest.raises(UsageError, match=r"call step\(\) equally often on every worker"):
        tally.settle()
    assert "equally often" in str(worker.failure)


def test_workers_that_end_a_round_differently_are_an_error(
    worker: Summing, session: RoundSession
) -> None:
    tally = Tally(session, 7, 1)
    worker.others = [1, 0, 0, 1, 0, 1, 0, 0]
    tally.start(SUMS, [True])
    with pytest.raises(UsageError, match=r"on another worker by zero_grad\(\) without step"):
        tally.settle()


@pytest.mark.parametrize("digest", [0, 0x00010000, 0x0000FFFF, 0xFFFFFFFF])
def test_another_digest_on_another_worker_is_told(
    worker: Summing, session: RoundSession, digest: int
) -> None:
    tally = Tally(session, 7, 1)
    for round_number, theirs in enumerate((digest, digest ^ 1, digest, digest ^ 0x10000)):
        worker.others = [round_number + 1, 1, 0, 0, 0, 1, theirs >> 16, theirs & 0xFFFF]
        tally.start(CROSSES, [True], digest)
        assert tally.is_used(0)
        assert tally.differs is (theirs != digest)
        tally.differs = False


@pytest.mark.parametrize(("here", "there"), [(True, 0), (False, 1), (False, 0)])
def test_every_worker_hears_that_a_worker_asks(
    worker: Summing, session: RoundSession, here: bool, there: int
) -> None:
    tally = Tally(session, 7, 1)
    worker.others = [1, 1, 0, 0, there, 1, 0, 0]
    tally.start(CROSSES, [True], asks=here)
    tally.settle()
    assert tally.is_asked is (here or there > 0)
