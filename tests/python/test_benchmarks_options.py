"""What benchmarks refuse of their command lines, before anything starts."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Behind all that is installed.
sys.path.append(str(ROOT))
from benchmarks import footprint, scale  # noqa: E402


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("train", "native"),  # it trains nothing
        ("train", "stok"),
        ("small", "sockets"),
        ("throughput", "ours,stok"),
        ("throughput", "ours,ours"),
        ("urgent", "ours"),
        ("call_overhead", "fast"),
    ],
)
def test_an_arm_that_is_none_is_refused_before_anything_starts(name: str, wrong: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--arms", wrong],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 2
    assert "error: argument --arms: " in ran.stderr


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("footprint --arms stok", "argument --arms: 'stok': want some of native,ours,stock"),
        ("footprint --parts strat", "argument --parts: 'strat': want some of start,keys,model"),
        ("footprint --repeats 0", "argument --repeats: '0': want a whole number from 1 on"),
        ("footprint --keys 10,", "argument --keys: '': want a whole number from 1 on"),
        ("footprint --model-mib 3", "argument --model-mib: '3': want a whole number from 4 on"),
        ("scale --smaller 64", "argument --smaller: '64': want KiB of a partition and of the"),
        ("scale --smaller 64:x", "argument --smaller: 'x': want a whole number from 1 on"),
        ("scale --workers 2,0", "argument --workers: '0': want a whole number from 1 on"),
        ("scale --real two", "argument --real: 'two': want a whole number from 1 on"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    line: str, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = line.split()
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as ended:
        {"footprint": footprint, "scale": scale}[name].main()
    assert ended.value.code == 2
    assert f"error: {wrong}" in capsys.readouterr().err


def test_scale_takes_empty_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["scale", "--workers=", "--real=", "--smaller="])
    scale.main()


def test_call_overhead_takes_no_option_for_a_kind_of_store() -> None:
    command = [sys.executable, "-m", "benchmarks.call_overhead", "--fast"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (ran.returncode, ran.stdout) == (2, "")
