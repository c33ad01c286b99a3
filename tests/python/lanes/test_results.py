"""Results of test programs: counts, and the tests that did not run, with the reason."""

import pathlib

import pytest
from results import read_results

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
