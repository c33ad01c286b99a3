"""What the doctor says of TensorFlow, which it does not import."""

import pathlib
from importlib import metadata
from typing import Dict, Optional

import pytest
from inline_snapshot import snapshot

from bytescheduler._doctor import tensorflow


def finding(
    monkeypatch: pytest.MonkeyPatch, version: Optional[str], **variables: str
) -> Optional[str]:
    """Return level, text and advice; None: it says nothing."""

    def version_of(package: str) -> str:
        if version is None or package != "tensorflow-cpu":
            raise metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(metadata, "version", version_of)
    findings = tensorflow.check(variables)
    assert len(findings) <= 1
    return f"{findings[0].level}: {findings[0].text}; {findings[0].advice}" if findings else None


@pytest.fixture
def empty(tmp_path: pathlib.Path) -> Dict[str, str]:
    """Return variables of a user without a compiler, whose cache is empty."""
    return {"XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}


def test_nothing_is_said_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(monkeypatch, None) is None


def test_an_old_version_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(monkeypatch, "2.14.1") == snapshot(
        "problem: TensorFlow 2.14.1: bytescheduler.tensorflow needs 2.15 or newer; install a newer "
        "TensorFlow, as its own page says"
    )


def test_operations_come_from_a_compiler_a_cache_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, empty: Dict[str, str]
) -> None:
    assert finding(monkeypatch, "2.15.1", **empty) == snapshot(
        "warning: TensorFlow 2.15.1, and no C++ compiler for its operations; apt-get install g++, "
        "or run python -m bytescheduler.tensorflow.build --out FILE on a machine with the same "
        "TensorFlow, and set BYTESCHEDULER_TF_OP=FILE"
    )
    assert finding(monkeypatch, "2.15.1", **{**empty, "CXX": "sh -m64"}) == snapshot(
        "ok: TensorFlow 2.15.1; the first import of bytescheduler.tensorflow compiles; "
    )
    (tmp_path / "bytescheduler").mkdir()
    (tmp_path / "bytescheduler" / "tf-2.15.1-a.so").touch()
    text = finding(monkeypatch, "2.15.1", **empty)
    assert text is not None
    assert text.replace(str(tmp_path), "CACHE") == snapshot(
        "ok: TensorFlow 2.15.1; a library of its operations is in CACHE/bytescheduler; "
    )
    monkeypatch.setenv("BYTESCHEDULER_TF_OP", "/absent/op.so")
    assert finding(monkeypatch, "2.15.1", **empty) == snapshot(
        "problem: TensorFlow 2.15.1; BYTESCHEDULER_TF_OP=/absent/op.so is no file; make the file "
        "by python -m bytescheduler.tensorflow.build --out FILE, or unset the setting"
    )
    monkeypatch.setenv("BYTESCHEDULER_TF_OP", __file__)
    assert finding(monkeypatch, "2.15.1", **empty) == (
        f"ok: TensorFlow 2.15.1, with the operations of {__file__}; "
    )
