"""Worker 0 says which job it has joined, unless the log has no such lines."""

import pytest
from inline_snapshot import snapshot

from bytescheduler.torch._job import job


class Session:
    """See `TorchSession`: the numbers of a job."""

    def __init__(self, rank: int, num_workers: int, num_servers: int, hosts_server: bool) -> None:
        self.rank = rank
        self.num_workers = num_workers
        self.num_servers = num_servers
        self.hosts_server = hosts_server


@pytest.fixture
def _talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "info")


def lines_of(
    session: Session, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the lines that the process prints when it has joined."""
    monkeypatch.setattr(job, "open_session", lambda *_: session)
    assert job._open() is session
    return capfd.readouterr().err


@pytest.mark.usefixtures("_talkative")
def test_worker_0_says_which_job_it_has_joined(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lines_of(Session(0, 2, 2, True), capfd, monkeypatch) == snapshot(
        "bytescheduler: direct job of 2 workers, each with a server in its process; "
        "a DistributedOptimizer crosses the barrier where it can\n"
    )
    assert lines_of(Session(0, 4, 3, False), capfd, monkeypatch) == snapshot(
        "bytescheduler: job of 4 workers and 3 servers; "
        "a DistributedOptimizer crosses the barrier where it can\n"
    )
    assert lines_of(Session(0, 1, 1, False), capfd, monkeypatch) == snapshot(
        "bytescheduler: job of 1 worker and 1 server; a single worker has nothing to average\n"
    )
    assert lines_of(Session(1, 2, 2, True), capfd, monkeypatch) == ""


def test_init_shares_the_job_of_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(1, 2, 2, True)
    seen = []

    def opened(*_: object, **options: object) -> Session:
        seen.append(options)
        return session

    monkeypatch.setattr(job, "open_session", opened)
    variables = {"RANK": "1"}
    assert job.open_by_store(variables, lambda *_: None) is session  # type: ignore[arg-type, return-value]
    assert seen == [{"variables": variables}]
    monkeypatch.setattr(job.PLACE, "shared", lambda: session)
    assert job._open() is session
    assert job.open_by_store(variables, lambda *_: None) is session  # type: ignore[arg-type, return-value]
    assert len(seen) == 1


def test_at_a_higher_level_of_the_log_nothing_is_said(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "warning")
    assert lines_of(Session(0, 2, 2, True), capfd, monkeypatch) == ""
