"""Lanes: side by side, where a lane ends, the processor time of a step, and the last lines."""

import json
import pathlib
import re
import subprocess
import sys
import time
from typing import Dict, List, Sequence, Union

import lane
import pytest
from results import Results
from steps import Step
from times import Times, read_times

# A make whose targets are files in its folder, which the test writes in Python.
MAKE = """#!{python}
import os, runpy, sys
with open("{folder}/words", "a") as out:
    out.write(" ".join(sys.argv[1:]) + chr(10))
runpy.run_path(os.path.join("{folder}", sys.argv[-1] + ".py"))
"""


class Lane:
    """A lane that a test writes: each step is a piece of Python."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch
        make = folder / "make"
        make.write_text(MAKE.format(python=sys.executable, folder=folder))
        make.chmod(0o755)
        monkeypatch.setenv("MAKE", str(make))
        monkeypatch.setattr(sys, "argv", ["lane.py", "test", "--build", str(folder)])
        monkeypatch.setattr(lane, "kept_times", lambda name: None)

    def run(self, steps: "List[Step]", **texts: str) -> int:
        """Run the lane; a step without a text prints its name."""
        for step in steps:
            text = texts.get(step.name, f'print("ran {step.name}")')
            (self.folder / f"{step.name}.py").write_text(text)
        self._patch.setattr(lane, "LANES", {"test": steps})
        return lane.main()

    @property
    def times(self) -> Times:
        return read_times(self.folder / "times.json")


@pytest.fixture
def written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Lane:
    return Lane(tmp_path, monkeypatch)


def test_steps_run_side_by_side(written: Lane) -> None:
    # Each waits for the other's file: one after the other, neither would end.
    meet = """
import pathlib, time
folder = pathlib.Path(__file__).parent
(folder / "{}.here").touch()
end = time.monotonic() + 30
while not (folder / "{}.here").exists():
    assert time.monotonic() < end
    time.sleep(0.01)
"""
    steps = [Step("a", load=0.5), Step("b", load=0.5)]
    assert written.run(steps, a=meet.format("a", "b"), b=meet.format("b", "a")) == 0


def test_a_step_begins_when_its_needs_have_ended(written: Lane) -> None:
    slow = 'import pathlib, time; time.sleep(0.3); pathlib.Path(__file__ + ".made").touch()'
    after = 'import pathlib; assert pathlib.Path(__file__).with_name("a.py.made").exists()'
    assert written.run([Step("b", ("a",), load=0.5), Step("a", load=0.5)], a=slow, b=after) == 0


def test_make_is_told_the_targets_that_the_lane_has_made(written: Lane) -> None:
    assert written.run([Step("a"), Step("b", ("a",)), Step("c", ("b",))]) == 0
    words = (written.folder / "words").read_text().splitlines()
    assert words[2] == "--no-print-directory -o setup -o a -o b c"


def test_times_are_kept_by_step(written: Lane) -> None:
    assert written.run([Step("a"), Step("b")]) == 0
    assert (written.times.lane, written.times.passed) == ("test", True)
    assert list(written.times.steps) == ["a", "b"]


def test_processor_time_is_that_of_a_step_and_its_descendants(written: Lane) -> None:
    burn = "import time\nwhile time.process_time() < 0.6: pass"
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    steps = [Step("busy", load=0.5), Step("idle", load=0.5)]
    assert written.run(steps, busy=below, idle="import time; time.sleep(1)") == 0
    cpu = {name: row["cpu_seconds"] for name, row in written.times.steps.items()}
    assert 0.6 <= cpu["busy"] < 3
    assert cpu["idle"] < 0.5


def test_background_steps_are_niced(written: Lane) -> None:
    tell = 'import os; print("niceness", os.nice(0))'
    assert written.run([Step("a", background=True), Step("b")], a=tell, b=tell) == 0
    niceness: Dict[str, int] = {}
    for name in ("a", "b"):
        text = (written.folder / "steps" / f"{name}.log").read_text()
        niceness[name] = int(text.split()[-1])
    assert niceness["a"] == min(19, niceness["b"] + lane.NICENESS)


def test_a_step_that_passed_prints_its_last_lines(
    written: Lane, capfd: pytest.CaptureFixture
) -> None:
    assert written.run([Step("a")], a='print("first", *"1234", sep="\\n")') == 0
    printed = capfd.readouterr().out
    assert re.search(r"--- a took \d+ s\n2\n3\n4\n", printed)
    assert "first" not in printed


BAD = 'print("first", *"1234", sep="\\n"); raise SystemExit(2)'


def test_nothing_starts_behind_a_failure_and_its_log_is_printed(
    written: Lane, capfd: pytest.CaptureFixture
) -> None:
    assert written.run([Step("bad"), Step("never")], bad=BAD) == 1
    printed = capfd.readouterr().out
    assert re.search(r"--- bad failed after \d+ s:\nfirst\n1\n2\n3\n4\n", printed)
    assert "never" not in printed
    assert printed.endswith("\n0 passed, 1 failed, 0 skipped\n")
    assert not written.times.passed


def test_a_failure_interrupts_the_steps_that_run(
    written: Lane, capfd: pytest.CaptureFixture
) -> None:
    long = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("began", flush=True)
    time.sleep(100)
except KeyboardInterrupt:
    print("ended what it began", flush=True)
    raise SystemExit(130)
"""
    log = written.folder / "steps" / "long.log"
    wait = f"""
import pathlib, time
while "began" not in pathlib.Path({str(log)!r}).read_text():
    time.sleep(0.01)
raise SystemExit(1)
"""
    begin = time.monotonic()
    assert written.run([Step("long", load=0.5), Step("bad", load=0.5)], long=long, bad=wait) == 1
    assert time.monotonic() - begin < lane.GRACE
    printed = capfd.readouterr().out
    assert "--- long was interrupted" in printed
    assert log.read_text() == "began\nended what it began\n"
    # It is no failure of its own.
    assert re.search(r"^long .*  interrupted$", printed, re.M)
    assert printed.endswith("\n0 passed, 1 failed, 0 skipped\n")


def test_a_step_that_stays_is_killed_with_its_children(
    written: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "GRACE", 0.2)
    stubborn = """
import signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "100"])
print(child.pid, flush=True)
child.wait()
"""
    log = written.folder / "steps" / "stubborn.log"
    wait = f"""
import pathlib, time
while not pathlib.Path({str(log)!r}).read_text().strip():
    time.sleep(0.01)
raise SystemExit(1)
"""
    steps = [Step("stubborn", load=0.5), Step("bad", load=0.5)]
    begin = time.monotonic()
    assert written.run(steps, stubborn=stubborn, bad=wait) == 1
    assert time.monotonic() - begin < 60
    child = pathlib.Path("/proc", log.read_text().strip(), "stat")
    end = time.monotonic() + 10
    # Until its new parent has waited for it, it may be there as a zombie.
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_lane_that_is_ended_ends_its_steps(tmp_path: pathlib.Path) -> None:
    """As the lane of a cancelled run in CI."""
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho $$ >"{tmp_path}/pid"\nexec sleep 100\n')
    make.chmod(0o755)
    command = [sys.executable, lane.__file__, "nightly", "--build", str(tmp_path)]
    process = subprocess.Popen(command, env={"MAKE": str(make), "PATH": "/usr/bin:/bin"})
    pid = tmp_path / "pid"
    end = time.monotonic() + 30
    while not pid.exists() or not pid.read_text().strip():
        assert time.monotonic() < end
        time.sleep(0.01)
    process.terminate()
    assert process.wait(timeout=lane.GRACE) == 130
    assert not pathlib.Path("/proc", pid.read_text().strip()).exists()


OUTCOMES = [
    lane.Outcome("asan", 61.4, 100.0, 0),
    lane.Outcome("lint", 5.0, 2.4, 2),
    lane.Outcome("fuzz", 4.0, 1.0, -2, interrupted=True),
]


def times_of(
    outcomes: "Sequence[lane.Outcome]", seconds: float, rooms: "Dict[str, float]"
) -> Times:
    steps = {row.name: {"seconds": row.seconds, "cpu_seconds": row.cpu_seconds} for row in outcomes}
    return Times("test", False, 2, seconds, steps, rooms)


def columns(line: str) -> "List[Union[str, int]]":
    return [int(word) if word.isdigit() else word for word in line.split()]


def test_the_report_shows_times_of_steps_beside_the_kept_times() -> None:
    times = times_of(OUTCOMES, 70.0, {})
    kept = times_of([lane.Outcome("asan", 50, 80, 0), lane.Outcome("gone", 9, 9, 0)], 80.0, {})
    lines = lane.report_times(OUTCOMES, times, kept)
    assert [columns(line) for line in lines[1:6]] == [
        ["step", "seconds", "cpu", "kept", "cpu"],
        ["asan", 61, 100, 50, 80],
        ["lint", 5, 2, "FAILED"],
        ["fuzz", 4, 1, "interrupted"],
        ["make", "test", 70, 103, 80, 89],
    ]


def test_the_report_sorts_rooms_by_seconds_beside_the_kept_times() -> None:
    times = times_of([], 70.0, {"tests/base": 3.0, "tests/e2e/jobs": 41.0, "tests/new": 1.0})
    kept = times_of([], 70.0, {"tests/base": 2.0, "tests/e2e/jobs": 40.0, "tests/gone": 5.0})
    lines = lane.report_times([], times, kept)
    assert [columns(line) for line in lines[lines.index("", 1) + 1 :]] == [
        ["room", "seconds", "kept"],
        ["tests/e2e/jobs", 41, 40],
        ["tests/base", 3, 2],
        ["tests/new", 1],
        ["tests/gone", 5],
    ]


def test_a_first_report_has_times_and_nothing_beside_them() -> None:
    lines = lane.report_times(OUTCOMES[:1], times_of(OUTCOMES[:1], 70.0, {"tests/base": 3}), None)
    assert columns(lines[2]) == ["asan", 61, 100]
    assert columns(lines[3]) == ["make", "test", 70, 100]
    assert columns(lines[-1]) == ["tests/base", 3]


def test_the_report_ends_with_reasons_and_counts() -> None:
    results = Results(passed=2, failed=2, skipped={"not root": ["tests.a", "tests.b"]})
    lines = lane.report_tests([], results)
    assert "  not root: tests.a and 1 more" in lines
    assert lines[-2:] == ["", "2 passed, 2 failed, 2 skipped"]


def test_a_step_that_fails_without_a_test_counts_as_one() -> None:
    assert lane.report_tests(OUTCOMES, Results(passed=3))[-1] == "3 passed, 1 failed, 0 skipped"


def test_rooms_of_the_results_are_in_the_times(written: Lane) -> None:
    write = """
import pathlib
path = pathlib.Path(__file__).parent / "results" / "python.xml"
path.write_text('<a><testcase classname="tests.e2e.jobs.test_huge" name="b" time="2.5" /></a>')
"""
    assert written.run([Step("a")], a=write) == 0
    assert json.loads((written.folder / "times.json").read_text())["rooms"] == {
        "tests/e2e/jobs": 2.5
    }
