"""Settings as Python has them: typed, frozen, and each a row of the engine's table."""

import ast
import dataclasses
import pathlib
from typing import get_type_hints

import pytest

from bytescheduler._native import settings
from bytescheduler._settings import Settings

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "bytescheduler"


def test_each_field_is_a_row_of_the_table_and_reads_its_default() -> None:
    rows = {row.name: row.default for row in settings()}
    fields = [field for field in dataclasses.fields(Settings) if field.name != "changed"]
    names = [field.metadata["name"] for field in fields]
    assert len(set(names)) == len(names)
    for field in fields:
        default = rows[field.metadata["name"]]
        field.metadata["read"]("" if default == "required" else default)  # does not raise


def test_defaults_are_the_engines() -> None:
    found = Settings.read()
    assert found.role == found.root_host == found.secret_file == found.metrics == ""
    assert found.num_workers is found.num_servers is None
    assert (found.root_port, found.port) == (0, 0)
    assert not found.uses_files
    assert (found.backend, found.tuning, found.log_level) == ("auto", "on", "info")
    assert (found.partition_bytes, found.credit_bytes) == (None, None)  # auto
    assert found.sizes == (128 << 10, 512 << 10)
    assert found.timeout_s == 60.0
    assert found.trusted_modules == ()
    assert found.changed == frozenset()
    assert not found.tuning_is_given
    assert not found.partitions_are_given
    assert found.is_talkative


def test_values_have_types(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": "3",
        "DMLC_PS_ROOT_PORT": "9000",
        "DMLC_LOCAL": "yes",
        "BYTESCHEDULER_CREDIT": "8MiB",
        "BYTESCHEDULER_TUNING": "off",
        "BYTESCHEDULER_TIMEOUT": "500ms",
        "BYTESCHEDULER_LOG_LEVEL": "warning",
        "BYTESCHEDULER_TRUSTED_MODULES": "mine, yours.too ,",
    }
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    found = Settings.read()
    assert (found.role, found.num_workers, found.root_port) == ("worker", 3, 9000)
    assert found.uses_files
    assert found.credit_bytes == 8 << 20
    assert (found.timeout_s, found.rendezvous_s) == (0.5, 0.5)
    assert found.trusted_modules == ("mine", "yours.too")
    assert found.changed == given.keys()
    assert found.tuning_is_given
    assert found.partitions_are_given
    assert not found.is_talkative


@pytest.mark.parametrize("text", ["soon", "5 parsecs", "-1", ""])
def test_a_malformed_value_reads_as_the_default(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("BYTESCHEDULER_TIMEOUT", text)
    monkeypatch.setenv("BYTESCHEDULER_PARTITION", text)
    monkeypatch.setenv("DMLC_NUM_SERVER", "one")
    found = Settings.read()
    assert (found.timeout_s, found.partition_bytes) == (60.0, None)
    assert found.num_servers is None


def test_nodes_wait_for_each_other_longer_than_for_a_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings.read().rendezvous_s == 300.0
    monkeypatch.setenv("BYTESCHEDULER_RENDEZVOUS_TIMEOUT", "2m")
    monkeypatch.setenv("BYTESCHEDULER_TIMEOUT", "1s")
    assert (Settings.read().timeout_s, Settings.read().rendezvous_s) == (1.0, 120.0)
    assert Settings.read({"BYTESCHEDULER_RENDEZVOUS_TIMEOUT": "3m"}).rendezvous_s == 180.0


def test_they_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings.read().role = "server"  # type: ignore[misc]


def test_each_value_has_the_type_that_its_field_names() -> None:
    hints = get_type_hints(Settings)
    found = Settings.of({"DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "2"})
    plain = {name: kind for name, kind in hints.items() if isinstance(kind, type)}
    assert len(plain) > 10
    for name, kind in plain.items():
        assert type(getattr(found, name)) is kind, name


def test_settings_are_read_at_one_place() -> None:
    """Modules that print settings read all of them; the others have a `Settings`."""
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        if path.name in ("_native.py", "_settings.py", "config.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            is_import = isinstance(node, ast.ImportFrom)
            if is_import and node.module in ("bytescheduler._native", "bytescheduler.config"):
                wrong += [path.name for alias in node.names if alias.name == "values"]
    assert wrong == []
