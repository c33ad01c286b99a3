"""`bytescheduler doctor` on NCCL, whose loading is played."""

import pathlib
import re
from typing import Dict, Mapping

import pytest
from inline_snapshot import snapshot

from bytescheduler._doctor import nccl
from bytescheduler._doctor.probe import Import

ROOT = pathlib.Path(__file__).resolve().parents[3]


def finding(monkeypatch: pytest.MonkeyPatch, outcome: str, detail: str) -> "tuple[str, str]":
    def imports(modules: Mapping[str, str], limit_s: float) -> "Dict[str, Import]":
        assert list(modules) == ["ctypes"]
        return {"ctypes": Import(outcome, detail)}

    monkeypatch.setattr(nccl, "imports", imports)
    monkeypatch.setattr(nccl, "_file", lambda: "/site/nvidia/nccl/lib/libnccl.so.2")
    (only,) = nccl.check(5)
    return only.level, only.text


def test_the_library_has_version_and_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(monkeypatch, "version", "22105") == snapshot(
        ("ok", "NCCL 2.21.5 (/site/nvidia/nccl/lib/libnccl.so.2)")
    )


def test_an_old_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(monkeypatch, "version", "21304") == snapshot(
        ("problem", "NCCL 2.13.4 (/site/nvidia/nccl/lib/libnccl.so.2) is older than 2.14")
    )


def test_no_library_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = (
        "OSError: /site/nvidia/nccl/lib/libnccl.so.2: cannot open shared object file: No such file"
    )
    assert finding(monkeypatch, "broken", absent) == snapshot(
        ("ok", "no NCCL is found; only BYTESCHEDULER_COMM=nccl needs one")
    )


def test_a_library_that_lacks_something_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    level, text = finding(monkeypatch, "broken", "OSError: libcudart.so.12: cannot open")
    assert level == "problem"
    assert "libcudart.so.12" in text


def test_this_python_can_ask() -> None:
    """A process of its own loads the library."""
    for only in nccl.check(60):
        assert only.level in ("ok", "problem"), only


def test_the_engine_has_the_same_name_and_version() -> None:
    room = ROOT / "src/backend/collective/nccl"
    assert f'"{nccl.FILE}"' in (room / "nccl_library.cc").read_text()
    oldest = re.search(r"kOldest = (\d+)", (room / "nccl_library.h").read_text())
    assert oldest is not None
    assert int(oldest.group(1)) == nccl.OLDEST
