"""Seconds by room: tests of C++ and of Python are counted in the folder that holds them."""

import pathlib

import pytest
from rooms import seconds_by_room


def write(path: pathlib.Path, *cases: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")


def test_python_counts_by_folder(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path / "python.xml",
        '<testcase classname="tests.e2e.jobs.test_huge" name="test_a" time="1.5" />',
        '<testcase classname="tests.e2e.jobs.test_two_jobs" name="test_b" time="2" />',
        '<testcase classname="tests.python.test_core.TestThings" name="test_c" time="0.25" />',
        '<testcase classname="" name="tests.e2e.torch.test_torch_sums" time="0" />',
    )
    assert seconds_by_room(tmp_path) == {
        "tests/e2e/jobs": 3.5,
        "tests/python": 0.25,
        "tests/e2e/torch": 0,
    }


def test_a_source_counts_in_its_folder_over_all_builds(tmp_path: pathlib.Path) -> None:
    case = '<testcase name="Runs" file="/a/tests/b/tests/server/sync/round_test.cc" time="{}" />'
    for build, seconds in (("asan", 3), ("tsan", 4)):
        write(tmp_path / build / "sync.xml", case.format(seconds))
    assert seconds_by_room(tmp_path) == {"tests/server/sync": 7}


@pytest.mark.parametrize("program", ["one_thread", "one_thread.3"])
def test_a_program_that_names_no_source_counts_where_its_own_lies(
    tmp_path: pathlib.Path, program: str
) -> None:
    case = '<testcase classname="Numa" name="Runs" time="0.5" />'
    write(tmp_path / f"{program}.xml", case)
    assert seconds_by_room(tmp_path) == {"tests": 0.5}
    write(tmp_path / f"{program}.xml")
    write(tmp_path / "no_such_source.0.xml", case)
    assert seconds_by_room(tmp_path) == {"no_such_source": 0.5}


def test_a_file_that_was_cut_off_counts_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cut.xml").write_text("<testsuites><testc")
    assert seconds_by_room(tmp_path) == {}
