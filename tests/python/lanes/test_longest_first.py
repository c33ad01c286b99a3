"""Long tests begin first, and a test of whole jobs waits for no other test of its file."""

import json
import pathlib
import re

import longest_first
import pytest
from longest_first import unit_of

RESULTS = """
<testsuites><testsuite>
<testcase classname="tests.python.lanes.test_lane" name="test_a" time="0.75" />
<testcase classname="tests.python.lanes.test_lane" name="test_b[x::y]" time="0.5" />
<testcase classname="tests.python.lanes.test_no_guest" name="test_c" time="0.25" />
<testcase classname="tests.e2e.mxnet.test_store" name="test_d[x.y]" time="7" />
<testcase classname="tests.e2e.mxnet.test_store" name="test_e" time="8" />
</testsuite></testsuites>
"""


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        ("tests/python/lanes/test_lane.py::test_a", "tests/python/lanes/test_lane.py"),
        ("tests/e2e/mxnet/test_store.py::test_d[x::y]", None),
        # Its tests share a lab, a cluster, what stock stores trained.
        (
            "tests/e2e/hosts/test_faults_on_hosts.py::test_a",
            "tests/e2e/hosts/test_faults_on_hosts.py",
        ),
        ("tests/e2e/launchers/test_slurm.py::test_a", "tests/e2e/launchers/test_slurm.py"),
        ("tests/e2e/mxnet/test_training.py::test_a", "tests/e2e/mxnet/test_training.py"),
    ],
)
def test_tests_that_share_nothing_go_to_any_process(test: str, unit: "str | None") -> None:
    assert unit_of(test) == (unit or test)


def test_the_longest_unit_is_taken_first_and_unknown_units_last() -> None:
    queue = longest_first.Queue({"long": 9.0, "short": 1.0})
    queue.update({"unknown": 1, "short": 2, "long": 3, "unknown too": 4})
    taken = [queue.popitem(last=False)[0] for _ in range(4)]
    assert taken == ["long", "short", "unknown", "unknown too"]
    assert not queue


def test_results_of_a_run_replace_the_kept_times_of_its_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, results = tmp_path / "kept.json", tmp_path / "results.xml"
    monkeypatch.setattr(longest_first, "_KEPT", kept)
    results.write_text(RESULTS)
    store = "tests/e2e/mxnet/test_store.py"
    kept.write_text(json.dumps({"tests/other.py": 5.0, f"{store}::test_old": 3.0}))
    longest_first.keep(results)
    assert json.loads(kept.read_text()) == {
        "tests/other.py": 5.0,
        "tests/python/lanes/test_lane.py": 1.2,
        f"{store}::test_d[x.y]": 7.0,
        f"{store}::test_e": 8.0,
    }


def test_kept_times_name_existing_files() -> None:
    root = pathlib.Path(__file__).resolve().parents[3]
    kept = json.loads((root / "tests" / "longest_first.json").read_text())
    missing = [unit for unit in kept if not (root / re.sub("::.*", "", unit)).exists()]
    assert missing == []
