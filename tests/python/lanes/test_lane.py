"""Lanes: what is printed at the end, what is kept, and where a lane stops."""

import json
import pathlib
import re
import sys
from typing import List

import lane
import pytest
from results import Results, read_results

ROOT = pathlib.Path(__file__).resolve().parents[3]

GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1"><testsuite name="Numa">
  <testcase name="Runs" status="run" classname="Numa" />
  <testcase name="Fails" status="run" classname="Numa"><failure message="no"/></testcase>
  <testcase name="Needs" status="run" result="skipped" classname="Numa">
    <skipped message="tests/base/numa_test.cc:12&#x0A;one NUMA node only&#x0A;"/>
  </testcase>
  <testcase name="Off" status="notrun" result="suppressed" classname="Numa" />
</testsuite></testsuites>
"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
  <testcase classname="tests.e2e.test_hosts" name="test_a"><skipped message="not root"/></testcase>
  <testcase classname="tests.e2e.test_hosts" name="test_b"><skipped message="not root"/></testcase>
  <testcase classname="tests.e2e.test_hosts" name="test_c" />
  <testcase classname="tests.e2e.test_hosts" name="test_d"><error message="set-up"/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "asan").mkdir()
    (tmp_path / "asan" / "numa_test.xml").write_text(GTEST)
    (tmp_path / "python.xml").write_text(PYTEST)
    return tmp_path


def test_both_kinds_of_results_are_counted(folder: pathlib.Path) -> None:
    results = read_results(folder)
    assert (results.passed, results.failed, results.num_skipped) == (2, 2, 3)
    assert results.skipped == {
        "one NUMA node only": ["Numa.Needs"],
        "not root": ["tests.e2e.test_hosts.test_a", "tests.e2e.test_hosts.test_b"],
    }


def test_a_test_that_two_builds_skip_is_listed_once(folder: pathlib.Path) -> None:
    (folder / "tsan.xml").write_text(GTEST)
    assert read_results(folder).skipped["one NUMA node only"] == ["Numa.Needs"]


def test_a_file_that_is_skipped_as_a_whole_has_its_reason(tmp_path: pathlib.Path) -> None:
    skipped = """<skipped message="collection skipped">('a.py', 26, 'Skipped: needs x')</skipped>"""
    case = f'<testcase classname="" name="tests.e2e.test_a">{skipped}</testcase>'
    (tmp_path / "python.xml").write_text(f"<testsuite>{case}</testsuite>")
    assert read_results(tmp_path).skipped == {"needs x": [".tests.e2e.test_a"]}


def test_a_file_that_was_cut_off_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cut.xml").write_text(GTEST[:100])
    assert read_results(tmp_path).failed == 1


def test_the_report_has_times_reasons_and_counts(folder: pathlib.Path) -> None:
    steps = [lane.Step("asan", 61.4, 100.0, 0), lane.Step("lint", 5.0, None, 2)]
    text = lane.report("test", steps, 70.0, read_results(folder))
    assert re.search(r"^asan +61 +100$", text, re.M)
    assert re.search(r"^lint +5 +FAILED$", text, re.M)
    assert re.search(r"^make test +70$", text, re.M)
    assert "  not root: tests.e2e.test_hosts.test_a and 1 more" in text
    assert text.endswith("\n2 passed, 2 failed, 3 skipped")


def test_a_step_that_fails_without_a_test_counts_as_one() -> None:
    text = lane.report("test", [lane.Step("asan-build", 5.0, 5.0, 2)], 5.0, Results(passed=3))
    assert text.endswith("\n3 passed, 1 failed, 0 skipped")


def fake_make(folder: pathlib.Path) -> str:
    """Return a make whose target bad fails and tells why."""
    path = folder / "make"
    path.write_text(
        f'#!{sys.executable}\nimport sys\nprint("ran", sys.argv[-1])\n'
        'sys.exit(2 if sys.argv[-1] == "bad" else 0)\n'
    )
    path.chmod(0o755)
    return str(path)


def run(monkeypatch: pytest.MonkeyPatch, build: pathlib.Path, rows: "List[List[str]]") -> int:
    monkeypatch.setenv("MAKE", fake_make(build))
    monkeypatch.setattr(lane, "LANES", {"test": rows})
    monkeypatch.setattr(sys, "argv", ["lane.py", "test", "--build", str(build)])
    return lane.main()


def test_a_lane_runs_its_rows_and_keeps_their_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    assert run(monkeypatch, tmp_path, [["one"], ["two", "three"]]) == 0
    kept = json.loads((tmp_path / "times.json").read_text())
    assert [step["name"] for step in kept["steps"]] == ["one", "two", "three"]
    assert kept["lane"] == "test"


def test_a_lane_stops_behind_the_row_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture
) -> None:
    assert run(monkeypatch, tmp_path, [["one", "bad"], ["never"]]) == 1
    printed = capfd.readouterr().out
    assert "--- bad failed:\nran bad" in printed
    assert "never" not in printed
    assert printed.endswith("0 passed, 1 failed, 0 skipped\n")


def test_the_steps_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    steps = {step for rows in lane.LANES.values() for row in rows for step in row}
    assert steps <= targets


def test_the_workflow_runs_every_nightly_part() -> None:
    workflow = (ROOT / ".github" / "workflows" / "lanes.yml").read_text()
    (parts,) = re.findall(r"^ +part: \[(.*)\]$", workflow, re.M)
    assert [f"nightly-{part}" for part in parts.split(", ")] == sum(lane.LANES["nightly"], [])
