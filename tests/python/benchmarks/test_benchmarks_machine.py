"""How benchmarks tell whether the machine was left alone."""

import argparse
import os
import pathlib
import time
from typing import List

import pytest
from inline_snapshot import snapshot

from benchmarks.lab import machine


def show(path: pathlib.Path, busy: int, idle: int, steal: int) -> None:
    path.write_text(f"cpu  {busy} 1 2 {idle} 5 3 4 {steal} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")


def test_stolen_time_is_a_share_of_the_wanted_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "STAT", tmp_path / "stat")
    show(machine.STAT, busy=100, idle=1000, steal=7)
    before = machine.Processors.now()
    assert before == (110, 7)
    assert before.stolen_since(before) == 0
    show(machine.STAT, busy=190, idle=9000, steal=17)
    assert machine.Processors.now().stolen_since(before) == pytest.approx(0.1)


def test_this_kernel_counts_busy_and_stolen_time() -> None:
    before = machine.Processors.now()
    begin = time.process_time()
    while time.process_time() < begin + 0.3:
        pass
    after = machine.Processors.now()
    ticks = os.sysconf("SC_CLK_TCK") * 0.3
    assert after.busy - before.busy > 0.8 * ticks
    assert 0 <= after.stolen_since(before) < 1


@pytest.mark.parametrize(("most", "tries"), [(1.0, 1), (0.25, 3), (0.0, machine.TRIES)])
def test_a_run_from_which_too_much_was_stolen_is_made_again(
    most: float,
    tries: int,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(machine, "STAT", tmp_path / "stat")
    show(machine.STAT, 0, 0, 0)
    runs: List[int] = []

    def run() -> int:
        runs.append(len(runs) + 1)
        steal = sum(100 // number for number in runs)
        show(machine.STAT, 100 * len(runs), 0, steal)
        return runs[-1]

    result, stolen = machine.quietly("an arm", run, most)
    assert result == len(runs) == len(stolen) == tries
    assert stolen[:3] == [0.5, 0.3333, 0.2481][:tries]
    told = capsys.readouterr().err
    assert told.count("an arm: ") == (tries if tries == machine.TRIES else tries - 1)
    assert ("50.0% of the processor time went to others; again" in told) == (tries > 1)


def test_of_runs_from_which_too_much_was_stolen_the_quietest_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = [0.5, 0.3, 0.12, 0.7, *[0.4] * (machine.TRIES - 4)]
    left = iter(shares)
    monkeypatch.setattr(machine.Processors, "stolen_since", lambda *_: next(left))
    runs = iter(range(1, 100))
    assert machine.quietly("an arm", lambda: next(runs), 0.1) == (3, shares)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == snapshot(
        "an arm: 40.0% of the processor time went to others; of 10 runs the one that lost 12.0% "
        "counts"
    )


def test_a_share_is_none_that_is_no_number_of_0_to_1() -> None:
    assert machine.share("0.02") == 0.02
    for wrong in ("2", "-0.1", "nan", "much"):
        with pytest.raises(argparse.ArgumentTypeError, match="want a share of 0 to 1"):
            machine.share(wrong)


def test_a_run_that_hung_counts_and_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.5, 0.4, 0.0])
    monkeypatch.setattr(machine.Processors, "stolen_since", lambda *_: next(shares))
    runs = iter([1, None, 3])
    assert machine.quietly("an arm", lambda: next(runs), 0.1) == (None, [0.5, 0.4])
