"""A launcher's words to the scheduler node about workers that cannot speak for themselves."""

import pathlib
import threading
from typing import List, Mapping, Tuple

import pytest

from bytescheduler._launch import leaving
from bytescheduler.errors import PeerLost

LIMIT_S = 20.0
ENV = {"BYTESCHEDULER_RENDEZVOUS_TIMEOUT": "200ms", "PATH": "is no setting"}


class Engine:
    """Stands in for the engine's calls."""

    def __init__(self) -> None:
        self.goodbyes: List[Tuple[str, str]] = []
        self.vouched: List[Tuple[int, int]] = []
        self.twice = threading.Event()
        self.fails = False

    def leave_for(self, place: str, overrides: Mapping[str, str], *, reason: str) -> None:
        if self.fails:
            raise PeerLost("nothing is there", 4)
        self.goodbyes.append((place, reason))

    def vouch_for(self, workers: int, token: int, overrides: Mapping[str, str]) -> None:
        assert "PATH" not in overrides
        self.vouched.append((workers, token))
        if len(self.vouched) >= 2:
            self.twice.set()
        if self.fails:
            raise PeerLost("nothing is there", 4)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(leaving, "_say_goodbye", made.leave_for)
    monkeypatch.setattr(leaving, "vouch_for", made.vouch_for)
    return made


def test_an_exit_code_is_the_reason_of_a_goodbye(engine: Engine) -> None:
    lines: List[str] = []
    leaving.leave_for(["9 7 0"], {}, lines.append)
    leaving.leave_for(["11 7 0"], {}, lines.append, 3)
    assert engine.goodbyes == [("9 7 0", ""), ("11 7 0", "exit code 3")]
    engine.fails = True
    leaving.leave_for(["11 7 0"], {}, lines.append, 3)
    assert lines == ["the worker ended without leaving the job: nothing is there"]


@pytest.mark.parametrize("fails", [False, True])
def test_it_vouches_again_and_again_with_one_token(engine: Engine, fails: bool) -> None:
    engine.fails = fails
    vouching = leaving.Vouching(lambda: 2, ENV)
    assert engine.twice.wait(LIMIT_S)
    vouching.stop()
    workers, tokens = zip(*engine.vouched)
    assert set(workers) == {2}
    assert len(set(tokens)) == 1


def test_it_ends_when_no_worker_is_silent(engine: Engine) -> None:
    vouching = leaving.Vouching(lambda: 0, ENV)
    vouching._thread.join(LIMIT_S)
    assert not vouching._thread.is_alive()
    assert not engine.vouched
    vouching.stop()


def test_it_ends_where_the_scheduler_node_waits_no_longer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "MOST_TIMEOUTS", 0)
    vouching = leaving.Vouching(lambda: 1, ENV)
    vouching._thread.join(LIMIT_S)
    assert not vouching._thread.is_alive()
    assert 1 <= len(engine.vouched) <= 4
    vouching.stop()


def test_the_scheduler_node_waits_as_many_time_outs() -> None:
    root = pathlib.Path(__file__).resolve().parents[3]
    header = root / "3rdparty/ps-lite/src/membership/coordinator/rendezvous.h"
    assert f"kMostTimeouts = {leaving.MOST_TIMEOUTS};" in header.read_text()
