"""`bytescheduler bench`, in a job of its own and as the worker of one."""

import ctypes
import json
import threading
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from click.testing import Result
from click_runner import runner
from inline_snapshot import snapshot
from roles import role
from sentences import line_with

from bytescheduler import cli
from bytescheduler._metrics import reader
from bytescheduler._metrics.exporter import Exporter
from bytescheduler._native import Node
from bytescheduler.commands import bench

NUMBERS = ("blocking_us", "blocking_p99_us", "burst_us_per_key", "large_bytes_per_s")


def invoke(*arguments: str) -> Result:
    return runner().invoke(cli._cli, ["bench", *arguments])


def looks_right(found: Dict[str, Any]) -> None:
    assert all(found[name] > 0 for name in NUMBERS), found
    assert found["blocking_p99_us"] >= found["blocking_us"]


def test_starts_a_job_of_its_own() -> None:
    result = invoke("--json", "--size", "256KiB", "--rounds", "2", "-s", "2")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    looks_right(found)
    assert (found["workers"], found["servers"], found["rounds"]) == (2, 2, 2)
    assert found["large_bytes"] == 256 << 10


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dict[str, str]]:
    """Start a job that lacks one of two workers; this process's settings are those of the other."""
    scheduler = Node.start(role("scheduler", 0))
    server = Node.start(role("server", scheduler.port))
    settings = role("worker", scheduler.port)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield settings
    server.close()
    scheduler.close()


def test_measures_the_job_it_is_a_worker_of(job: Dict[str, str]) -> None:
    other: List[Any] = []
    thread = threading.Thread(target=lambda: other.append(bench._work(4096, 1)))
    thread.start()
    result = invoke("--size", "4096", "--rounds", "1")
    thread.join(60)
    assert result.exit_code == 0, result.stderr
    (printed,) = [text for text in (result.stdout, other[0]) if text]  # worker 0 alone
    if printed.startswith("{"):
        looks_right(json.loads(printed))
    else:
        head, *rows = printed.splitlines()
        assert head == "sums, 2 workers, 1 server, medians"
        assert [row.split("  ")[1] for row in rows] == [
            "1 KiB, one after another",
            "1 KiB, 1000 at once",
            "0.00390625 MiB",
        ]


def test_a_worker_shows_its_metrics_as_every_worker_does(
    job: Dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_METRICS", "0")
    monkeypatch.setattr(reader, "_PATIENCE_S", 60.0)  # on a busy machine too
    shown: List[Any] = []

    def look(*arguments: object) -> Exporter:
        showing = Exporter(*arguments)  # type: ignore[arg-type]
        port = showing._server.server_port
        shown.append(reader.read(("127.0.0.1", port)))
        return showing

    monkeypatch.setattr("bytescheduler._metrics.exporter.Exporter", look)
    other: List[Any] = []
    thread = threading.Thread(target=lambda: other.append(bench._work(4096, 1)))
    thread.start()
    result = invoke("--size", "4096", "--rounds", "1", "--json")
    thread.join(60)
    assert result.exit_code == 0, result.stderr
    assert sorted((node.role, node.rank) for node in shown) == [("worker", 0), ("worker", 1)]


def test_a_job_that_does_not_come_together_is_one_line(
    job: Dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_TIMEOUT", "1s")
    result = invoke()
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "scheduler node at 127.0.0.1:" in result.stderr


def test_a_wrong_setting_is_one_line_and_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_ROLE", "worker")
    result = invoke()
    assert result.exit_code == 2
    assert "DMLC_NUM_WORKER is not set" in result.stderr


def test_a_job_without_servers_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ROLE": "worker", "NUM_WORKER": "2", "NUM_SERVER": "0"}.items():
        monkeypatch.setenv(f"DMLC_{name}", value)
    result = invoke()
    assert result.exit_code == 2
    assert "DMLC_NUM_SERVER is 0: start the job with servers" in result.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("PARTITION", "8Q"), ("PARTITION", "2GiB"), ("CREDITS", "1MiB")]
)
def test_no_job_is_started_with_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"BYTESCHEDULER_{name}", value)
    result = invoke()
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"BYTESCHEDULER_{name}" in result.stderr


@pytest.mark.parametrize(
    "size", ["3", "6", "0", "8GiB", "big", "-4", "", "64 MiB", "8moo", "64Mbit"]
)
def test_a_size_that_is_none_is_refused(size: str) -> None:
    result = invoke("--size", size)
    assert result.exit_code == 2
    line = line_with("--size", result.stderr)
    assert f"{size}: " in line
    assert line.rpartition(": ")[2] == snapshot("want 4 bytes to 4GiB, whole floats, such as 64MiB")


class Wrong:
    """A worker whose sums are those of another one."""

    rank, num_workers, num_servers = 1, 2, 1

    def broadcast(self, items: List[Tuple[int, int, int, int]], *, owner: object) -> None:
        """Leave everything as it is."""

    def start_push_pull(
        self, key: int, send: int, recv: int, size: int, *, owner: object
    ) -> "Wrong":
        ctypes.memmove(recv, send, size)
        return self

    def wait(self) -> None:
        """Be done."""


def test_a_wrong_sum_is_told() -> None:
    worker: Any = Wrong()
    with pytest.raises(SystemExit, match="the sum of key 0 is wrong"):
        bench._measure(worker, 4096, 1)


def test_a_job_that_fails_is_a_line_and_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "_TIMEOUT_S", 0.1)
        result = invoke("--size", "1MiB")
    assert result.exit_code == 1
    assert (
        "bytescheduler: the job ended with exit code 124" in result.stderr + capfd.readouterr().err
    )


def test_a_result_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_run_job", lambda *_: "{}")
    result = invoke("--result", "/dev/full")
    assert result.stderr == snapshot("bytescheduler: /dev/full: No space left on device\n")
    assert result.exit_code == 1
