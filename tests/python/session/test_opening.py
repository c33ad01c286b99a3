"""The way into a job: alone, or refused with a cure."""

import pytest

from bytescheduler._session.opening import open_session
from bytescheduler._session.place import Place
from bytescheduler._session.round_session import RoundSession
from bytescheduler.errors import ConfigError


def test_a_process_alone_needs_no_server(capfd: pytest.CaptureFixture[str]) -> None:
    assert open_session(Place(), RoundSession) is None
    assert "trains alone" in capfd.readouterr().err


def test_a_server_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_ROLE", "server")
    with pytest.raises(ConfigError, match="a training script is a worker"):
        open_session(Place(), RoundSession)
