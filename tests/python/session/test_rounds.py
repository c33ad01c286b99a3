"""The end of a job waits for the rounds of all sources that are alive, and none begins later."""

from typing import List

import pytest
from fake_engine import FakeWorker

from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import RoundCall, Rounds
from bytescheduler.errors import Closed, ConfigError, Error, PeerLost


class Round:
    def __init__(self, *, ends: bool = True) -> None:
        self.ends = ends
        self.waited = 0

    def over(self) -> bool:
        return self.ends and self.waited > 0

    def wait(self) -> None:
        self.waited += 1
        if not self.ends:
            raise RuntimeError("the device failed")


class Lost(Round):
    def over(self) -> bool:
        raise PeerLost("lost worker 1", 4)


class Source:
    def __init__(self, rounds: List[Round]) -> None:
        self.rounds = rounds
        self.ends = 0

    def unfinished(self) -> List[Round]:
        return self.rounds

    def at_end(self) -> None:
        self.ends += 1


def test_draining_waits_for_rounds_that_end() -> None:
    source = Source([Round(), Lost()])
    rounds = Rounds()
    rounds.add(source)
    assert rounds.pending() == 1  # a lost one has ended
    assert not rounds.drain(0.01)
    assert rounds.drain()
    assert rounds.pending() == 0
    rounds.close()
    assert source.ends == 1


def test_a_round_that_cannot_end_is_not_waited_for_again() -> None:
    source = Source([Round(ends=False)])
    rounds = Rounds()
    rounds.add(source)
    assert not rounds.drain()
    assert source.rounds[0].waited == 1


def test_rounds_of_a_source_that_is_gone_do_not_count() -> None:
    rounds = Rounds()
    rounds.add(Source([Round(ends=False)]))
    assert rounds.drain()


class ClosedWorker(FakeWorker):
    """Starts no round."""

    def start_push_pull(self, *arguments: object, **options: object) -> None:
        raise Closed("the worker was closed", 3)


def test_a_round_after_shutdown_says_to_make_its_owner_again() -> None:
    session = RoundSession(ClosedWorker())  # type: ignore[arg-type]
    call = RoundCall(0, False)
    with pytest.raises(Closed, match="the worker was closed"):
        session.start_round(3, 0, 0, 4, call, owner=None)  # the engine closed it, not the script
    session.close()
    with pytest.raises(Closed, match=r"shutdown\(\) has closed .*: after init\(\) make it again"):
        session.start_round(3, 0, 0, 4, call, owner=None)


class Failed(Round):
    """A round that raises an error."""

    def __init__(self, error: Error) -> None:
        super().__init__()
        self._error = error

    def wait(self) -> None:
        raise self._error


def test_an_error_of_a_round_alone_hides_no_later_failure_of_the_job() -> None:
    worker = FakeWorker()
    session = RoundSession(worker)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="op=Max"):
        session.wait(Failed(ConfigError("worker 0 called op=Min, and worker 1 op=Max", 1)))
    worker.failure = PeerLost("lost worker 1", 4)
    with pytest.raises(PeerLost, match="lost worker 1"):
        session.close()


def test_a_failure_of_the_job_that_a_round_has_raised_is_not_raised_again() -> None:
    worker = FakeWorker()
    session = RoundSession(worker)  # type: ignore[arg-type]
    worker.failure = PeerLost("lost worker 1", 4)
    with pytest.raises(PeerLost, match="lost worker 1"):
        session.wait(Failed(worker.failure))
    session.close()
    assert worker.closed
