"""What benchmarks refuse of their command lines, before anything starts."""

import argparse
import importlib
import importlib.util
import pathlib
import subprocess
import sys

import pytest

from benchmarks.jobs import scale
from benchmarks.lab import options

ROOT = pathlib.Path(__file__).resolve().parents[3]


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
        ("replay --repeats 0", "argument --repeats: '0': want a whole number from 1 on"),
        ("replay --most-stolen 2", "argument --most-stolen: '2': want a share of 0 to 1"),
        ("replay --iterations 2", "--iterations: want more than 2, which are not counted"),
        ("replay --rate none", "--rate none has no ratio: want --compute"),
        (
            "replay --ratios 1 --compute 0.5",
            "argument --compute: not allowed with argument --ratio",
        ),
        ("replay --compute 0", "argument --compute: '0': want seconds above 0, such as 0.25"),
        ("replay --compute -1", "argument --compute: '-1': want seconds above 0"),
        ("replay --compute nan", "argument --compute: 'nan': want seconds above 0"),
        ("replay --scale 0", "argument --scale: '0': want a whole number from 1 on"),
        ("replay --scale -8", "argument --scale: '-8': want a whole number from 1 on"),
        ("replay --rate 100gbit --ratios 1,30", "--ratios: want some that leave a millisecond"),
        ("replay --workers 0", "argument -w/--workers: '0': want a whole number from 1 on"),
        ("replay -w 4 -s 2 --together 3", "3 servers beside workers: want 0 to 2"),
        ("replay --factors half", "argument --factors: half: want a host and its part of the rate"),
        ("replay --factors 5=0.5", "the rate of host 5: there are 4 hosts"),
        ("replay --factors 1=nan", "the rate of host 1: want 0.001 to 1000 times that of the"),
        ("replay --factors 1=2,1=3", "the rate of host 1 is there twice"),
        ("replay --rate none --compute 1 --factors 1=2", "--factors: want links that have a rate"),
        (
            "replay --compression gzip",
            "argument --compression: 'gzip': want some of onebit,topk,randomk,dithering,int8,",
        ),
        ("replay --framework torch --compression onebit", "--compression: want --framework mxnet"),
        ("fusion --factors 1=2 --rates 1gbit,none", "--factors: want links that have a rate"),
        ("train -w 60 -s 60", "60+60: 120 hosts, want at most 100"),
        ("shapes --only 3+4", "argument --only: '3+4': want some of 2+2,2+2 together,2+1,"),
        ("shapes --arms ours-tuned", "--arms: ours-tuned would not settle in so few steps"),
        ("shapes --iterations 2", "--iterations: want more than 2, which are not counted"),
        ("shapes --most-s 0", "argument --most-s: '0': want seconds above 0, such as 0.25"),
        ("advise --iterations 2", "--iterations: want more than 2, which are not counted"),
        ("sweep --scale 0", "argument --scale: '0': want a whole number from 1 on"),
        ("train --batch 0", "argument --batch: '0': want a whole number from 1 on"),
        ("train --rate fast", "argument --rate: fast: want kbit, mbit or gbit in whole numbers"),
        ("train --epochs 1", "--epochs: want at least 2, as the first one is not counted"),
        ("urgent --rate fast", "argument --rate: fast: want kbit, mbit or gbit in whole numbers"),
        ("urgent --count 0", "argument --count: '0': want a whole number from 1 on"),
        ("urgent --bytes 0", "argument --bytes: '0': want a whole number from 4 on"),
        ("urgent --bytes 4097", "--bytes: want a multiple of 4, as the tensor is one of float32"),
        ("fusion --rates 1gbit,fast", "argument --rates: fast: want kbit, mbit or gbit"),
        ("fusion --groups 1,0", "argument --groups: '0': want a whole number from 1 on"),
        ("fusion --scale 0", "argument --scale: '0': want a whole number from 1 on"),
        ("tuning --tuned-steps 22", "argument --tuned-steps: '22': want a whole number from 23 on"),
        (
            "tuning --start fast",
            "argument --start: fast: want KiB of a partition and of the credit",
        ),
        ("scheduler --repeats 0", "argument --repeats: '0': want a whole number from 1 on"),
        ("sweep --partitions 64,x", "argument --partitions: 'x': want a whole number from 1 on"),
        ("throughput --rate fast", "argument --rate: fast: want kbit, mbit or gbit in whole"),
        ("throughput --sizes 64", "argument --sizes: '64': want sizes such as 64K or 16M"),
        ("small --keys 0", "argument --keys: '0': want a whole number from 1 on"),
        ("coding --repeats 0", "argument --repeats: '0': want a whole number from 1 on"),
        ("reduce --repeats x", "argument --repeats: 'x': want a whole number from 1 on"),
        ("copies --build nowhere", "--build nowhere: libcount_copies.so is not there"),
    ],
)
def test_options_that_cannot_be_measured_are_refused_before_the_start(
    line: str, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = line.split()
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2
    assert f"error: {wrong}" in capsys.readouterr().err


def test_scale_takes_empty_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["scale", "--workers=", "--real=", "--smaller="])
    scale.main()


@pytest.mark.parametrize("name", ["replay", "train", "tuning"])
def test_a_run_that_cannot_tune_is_told_before_the_start(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    arms = [] if name == "tuning" else ["--arms", "ours-tuned"]
    monkeypatch.setattr(sys, "argv", [name, *arms])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2
    assert 'pip install "bytescheduler[tuning]"' in capsys.readouterr().err


def test_a_run_that_can_tune_is_not_stopped() -> None:
    pytest.importorskip("bayes_opt")
    options.require_tuner(argparse.ArgumentParser())


def test_every_command_is_found_without_its_room() -> None:
    rooms = [path.parent.name for path in ROOT.glob("benchmarks/*/__init__.py")]
    assert sorted(rooms) == ["engine", "jobs", "lab", "pytorch", "rdma", "tensorflow"]
    with_room = ("lab", "rdma")  # those by RDMA have the names of others
    for path in ROOT.glob("benchmarks/*/*.py"):
        if "argparse.ArgumentParser(" in path.read_text() and path.parent.name not in with_room:
            found = importlib.util.find_spec(f"benchmarks.{path.stem}")
            assert found is not None, path
            assert found.origin == str(path)
