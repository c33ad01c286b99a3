"""A session that does not begin lets its worker end."""

from typing import Any, List

import pytest

pytest.importorskip("tensorflow")

from bytescheduler._session.round_session import RoundSession  # noqa: E402
from bytescheduler.tensorflow._engine import session  # noqa: E402


class FakeGate:
    shut_gates: List["FakeGate"] = []

    def __init__(self, worker: Any) -> None:  # noqa: ANN401
        self.worker = worker

    def shut(self) -> None:
        self.shut_gates.append(self)


def test_a_gate_is_shut_where_the_operations_do_not_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(gate: FakeGate, job: int) -> None:
        raise ImportError("another table")

    monkeypatch.setattr(session, "Gate", FakeGate)
    monkeypatch.setattr(session, "connect", fail)
    monkeypatch.setattr(RoundSession, "__init__", lambda *_: None)
    number = session.job_number()
    with pytest.raises(ImportError, match="another table"):
        session.TensorFlowSession("worker")  # type: ignore[arg-type]
    assert [gate.worker for gate in FakeGate.shut_gates] == ["worker"]
    assert session.job_number() == number + 1
