"""The settings as Python sees them, and their reference in docs/."""

import os
import pathlib
import re
import subprocess
import sys
from typing import Dict

import pytest
from inline_snapshot import snapshot

from bytescheduler import ConfigError, config
from bytescheduler._metrics.exporter import Exporter
from bytescheduler._native import Metric

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIRED = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9000",
}


def test_the_reference_is_current() -> None:
    written = (ROOT / "docs" / "user" / "settings.md").read_text()
    assert written == config.markdown(), (
        "docs/user/settings.md is old: "
        "python -m bytescheduler.config --markdown > docs/user/settings.md"
    )


def test_each_setting_is_in_one_table_of_the_reference() -> None:
    for_users, for_experts = (
        re.findall(r"^\| `(\w+)` \|", part, re.M)
        for part in config.markdown().split("## For experts")
    )
    settings = config.settings()
    assert for_users == [row.name for row in settings if not row.for_experts]
    assert for_experts == [row.name for row in settings if row.for_experts]
    assert "DMLC_ROLE" in for_users
    assert "DMLC_PS_WATER_MARK" in for_experts


def test_the_command_prints_the_reference() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "bytescheduler.config", "--markdown"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    assert out == config.markdown()


def test_every_setting_has_a_sentence_a_scope_and_a_kind() -> None:
    for row in config.settings():
        assert row.sentence, row.name
        assert row.scope in ("process", "job"), row.name
        kinds = ("bytes", "seconds", "count", "rate", "flag", "text", "host", "address", "choice")
        assert row.kind.split(" ")[0] in kinds


def test_good_settings_pass() -> None:
    config.check_settings(REQUIRED)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "BYTESCHEDULER_CREDIT",
            "8Q",
            "BYTESCHEDULER_CREDIT=8Q: want bytes, such as 8388608 or 8MiB",
        ),
        (
            "BYTESCHEDULER_CREDITS",
            "1",
            "BYTESCHEDULER_CREDITS is no setting; did you mean BYTESCHEDULER_CREDIT?",
        ),
        ("DMLC_NUM_WORKER", "", "DMLC_NUM_WORKER is not set (how many workers the job has)"),
    ],
)
def test_bad_settings_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.check_settings({**REQUIRED, name: value})
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_PARTITON", "1MiB")
    with pytest.raises(ConfigError, match="did you mean BYTESCHEDULER_PARTITION"):
        config.check_settings(REQUIRED)


def test_values_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_HOLD", "1MiB")
    values = {row.name: row for row in config.values({"BYTESCHEDULER_CREDIT": "2MiB"})}
    assert values["BYTESCHEDULER_HOLD"].origin == "environment"
    assert values["BYTESCHEDULER_CREDIT"][1:] == ("2MiB", "argument")
    assert values["BYTESCHEDULER_PARTITION"][1:] == ("auto", "default")
    assert values["DMLC_ROLE"].origin == "not set"
    assert "BYTESCHEDULER_HOLD" in config.table()


def test_sizes_that_the_link_decided_are_asked_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [Metric("partition_bytes", None, 262144.0), Metric("credit_bytes", None, 786432.0)]
    exporter = Exporter(lambda: metrics, "worker", 0, "127.0.0.1", 0)
    try:
        monkeypatch.setenv("BYTESCHEDULER_METRICS", exporter.url.split(":")[2].split("/")[0])
        shown = config.table()
        monkeypatch.setenv("BYTESCHEDULER_CREDIT", "1MiB")
        chosen = config.table()
    finally:
        exporter.close()
    rows = {line.split()[0]: line for line in shown.splitlines()}
    assert rows["BYTESCHEDULER_PARTITION"].endswith("default; the link or tuning decided 256KiB")
    assert rows["BYTESCHEDULER_CREDIT"].endswith("default; the link or tuning decided 768KiB")
    assert "decided" not in chosen


def run_command() -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bytescheduler.config"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_shows_the_values_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PS_HEARTBEAT_INTERVAL", "3")
    result = run_command()
    assert (result.returncode, result.stderr) == (0, "")
    rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert rows["BYTESCHEDULER_HEARTBEAT_INTERVAL"].split() == [
        *("3", "1s", "s", "PS_HEARTBEAT_INTERVAL")
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("BYTESCHEDULER_CREDITS", "1", "did you mean BYTESCHEDULER_CREDIT?"),
        ("BYTESCHEDULER_CREDIT", "8Q", "BYTESCHEDULER_CREDIT=8Q: want bytes"),
        ("DMLC_NUM_WORKER", "0", "DMLC_NUM_WORKER=0: want 1 to"),
    ],
)
def test_the_command_reports_values_that_a_job_would_refuse(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    result = run_command()
    assert result.returncode == 2
    assert message in result.stderr
    assert "BYTESCHEDULER_PARTITION" in result.stdout


def test_all_that_is_wrong_is_found_and_the_rest_stays_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in {
        "BYTESCHEDULER_CREDITS": "1",
        "BYTESCHEDULER_HOLDS": "1",
        "BYTESCHEDULER_CREDIT": "8Q",
        "DMLC_ROLE": "boss",
        "BYTESCHEDULER_HEARTBEAT_INTERVAL": "40",
        "BYTESCHEDULER_SECRET_FILE": "/no/such/secret",
    }.items():
        monkeypatch.setenv(name, text)
    problems, overrides = config.examine()
    assert [problem.name for problem in problems] == [
        "BYTESCHEDULER_CREDITS",
        "BYTESCHEDULER_HOLDS",
        "DMLC_ROLE",
        "BYTESCHEDULER_CREDIT",
        "BYTESCHEDULER_HEARTBEAT_TIMEOUT",
        "BYTESCHEDULER_SECRET_FILE",
    ]
    assert problems[3].message == snapshot(
        "BYTESCHEDULER_CREDIT=8Q: want bytes, such as 8388608 or 8MiB"
    )
    config.check_settings(overrides)


@pytest.mark.parametrize(
    "settings",
    [
        {"PS_HEARTBEAT_INTERVAL": "60"},
        {"PS_HEARTBEAT_TIMEOUT": "1"},
        {"PS_HEARTBEAT_INTERVAL": "60", "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "5"},
        {"PS_HEARTBEAT_TIMEOUT": "5", "BYTESCHEDULER_HEARTBEAT_INTERVAL": "60"},
    ],
)
def test_a_mistake_under_the_name_that_stands_in_is_hidden_too(
    monkeypatch: pytest.MonkeyPatch, settings: Dict[str, str]
) -> None:
    for name, text in settings.items():
        monkeypatch.setenv(name, text)
    problems, overrides = config.examine()
    assert [problem.name for problem in problems] == ["BYTESCHEDULER_HEARTBEAT_TIMEOUT"]
    config.check_settings(overrides)


def test_outside_of_a_job_nothing_is_missing() -> None:
    problems, overrides = config.examine()
    assert problems == []
    assert set(overrides) == set(REQUIRED)


def test_a_name_that_is_no_text_is_told_and_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, os.fsdecode(b"BYTESCHEDULER_\xff"), "1")
    problems, _ = config.examine()
    assert [problem.message for problem in problems] == snapshot(
        ["BYTESCHEDULER_\ufffd is no setting; bytescheduler config lists them"]
    )


def test_settings_are_texts() -> None:
    with pytest.raises(ConfigError, match="want names and values as str"):
        config.check_settings({**REQUIRED, "BYTESCHEDULER_CREDIT": 4096})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("0.5", 0.5), ("500ms", 0.5), ("5s", 5), ("2m", 120), ("1h", 3600)],
)
def test_times_are_seconds(text: str, value: float) -> None:
    assert config.seconds(text) == value


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *((f"3{unit}", 3) for unit in ("", "B")),
        *((f"3{unit}", 3 << 10) for unit in ("K", "KB", "KiB")),
        *((f"3{unit}", 3 << 20) for unit in ("M", "MB", "MiB")),
        *((f"3{unit}", 3 << 30) for unit in ("G", "GB", "GiB")),
    ],
)
def test_sizes_are_read_as_by_the_engine(
    text: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.size(text) == size
    monkeypatch.setenv("BYTESCHEDULER_HOLD", text)  # any size will do
    wrong, _ = config.examine()
    assert "BYTESCHEDULER_HOLD" not in {row.name for row in wrong}


@pytest.mark.parametrize("text", ["", "B", "3 K", "3k", "-3", "3Ki", "3T", "0x3", "3.5M", "3moo"])
def test_a_malformed_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="want bytes, such as 8388608 or 8MiB"):
        config.size(text)
