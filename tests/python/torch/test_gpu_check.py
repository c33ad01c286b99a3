"""What tests/gpu/check.py finds before and after its workers, on machines without a GPU too."""

import importlib.util
import os
import pathlib
import sys
from types import ModuleType
from typing import Any, Dict

import pytest
from inline_snapshot import snapshot

ROOT = pathlib.Path(__file__).resolve().parents[3]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", ROOT / "tests" / "gpu" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK: Any = load()


def copy(name: str, end: float) -> Dict[str, Any]:
    return {"cat": "proxy", "name": name, "ts": 1.0, "dur": end - 1.0}


def test_wheels_are_small_and_carry_their_libraries(tmp_path: pathlib.Path) -> None:
    good = tmp_path / "b-1-cp312-cp312-manylinux_2_35_x86_64.whl"
    good.write_bytes(b"x")
    assert CHECK.why_not_wheel(good) is None
    bare = tmp_path / "b-1-cp312-cp312-linux_x86_64.whl"
    bare.write_bytes(b"x")
    assert "does not carry its libraries" in CHECK.why_not_wheel(bare)
    with good.open("r+b") as large:
        large.truncate(CHECK.LARGEST_WHEEL + 1)
    assert "want at most" in CHECK.why_not_wheel(good)


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "__version__", "2.10.1+cu130")
    assert CHECK.why_not_here(False) == snapshot("PyTorch is 2.10.1+cu130, want 2.11 or later")
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "nothing ran on a GPU" in CHECK.why_not_here(False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no GPU is on this machine" in CHECK.why_not_here(False)
    assert CHECK.why_not_here(True) is None


def test_all_that_workers_print_is_kept_though_one_stands_still(tmp_path: pathlib.Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(2)]
    scripts = ["import sys; sys.exit('why it ends')", "import time; time.sleep(60)"]
    command = [sys.executable, "-c"]
    workers = [CHECK.start([*command, s], dict(os.environ), p) for s, p in zip(scripts, paths)]
    assert workers[0].wait() == 1
    assert CHECK.why_not_well(workers, 0.1) == "a worker still runs after 0.1 seconds"
    assert "why it ends" in paths[0].read_text()
    assert CHECK.why_not_well(workers[:1], 10) == "the workers ended with [1]"


def test_copies_during_backward_are_told_from_copies_at_its_end() -> None:
    during = [copy("last", 10), copy("other", 20), copy("first", 30)]
    after = [copy("last", 129), copy("first", 130)]
    assert CHECK.overlapping(during + after, "last", "first", 20) == (1, 2)
    assert CHECK.overlapping([], "last", "first", 20) == (0, 0)
