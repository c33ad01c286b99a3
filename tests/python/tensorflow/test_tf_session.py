"""A session that does not begin."""

from typing import Any, List

import pytest

pytest.importorskip("tensorflow")

from bytescheduler._session.round_session import RoundSession  # noqa: E402
from bytescheduler.errors import ConfigError  # noqa: E402
from bytescheduler.tensorflow._engine import session  # noqa: E402
from bytescheduler.tensorflow._job.job import current  # noqa: E402


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


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("BYTESCHEDULER_COMM", "BYTESCHEDULER_COMM to direct or mpi"),
        ("BYTESCHEDULER_LOCAL_SUMS", "BYTESCHEDULER_LOCAL_SUMS=1"),
    ],
)
def test_nccl_is_refused_before_the_job_begins(
    monkeypatch: pytest.MonkeyPatch, name: str, cure: str
) -> None:
    monkeypatch.setenv(name, "nccl")
    launched = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for variable, value in launched.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as raised:
        current().join()
    assert str(raised.value) == (
        f"{name}=nccl: NCCL sums tensors of GPUs, and TensorFlow's tensors travel through the "
        f"host: set {cure}"
    )
