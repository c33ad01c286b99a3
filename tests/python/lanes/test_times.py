"""Times of a lane that are kept, for later runs to print beside their own."""

import dataclasses
import pathlib
import sys

import pytest
import times
from times import Times, keep, kept_times

RUN = Times(
    lane="test",
    passed=True,
    processors=2,
    seconds=1200.4,
    steps={"asan": {"seconds": 61.4, "cpu_seconds": 100.2}},
    rooms={"tests/worker": 1.26, "tests/base": 3.0},
)


def test_a_run_is_kept_in_place_of_the_last_of_its_lane(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kept.json"
    keep(dataclasses.replace(RUN, lane="quick"), path)
    keep(dataclasses.replace(RUN, seconds=9000.0), path)
    keep(RUN, path)
    kept = kept_times("test", path)
    assert kept is not None
    assert (kept.seconds, kept.processors) == (1200, 2)
    assert kept.steps == {"asan": {"seconds": 61, "cpu_seconds": 100}}
    assert kept.rooms == {"tests/base": 3.0, "tests/worker": 1.3}
    assert kept_times("quick", path) is not None
    assert kept_times("nightly", path) is None


def test_a_run_that_failed_is_not_kept(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "kept.json"
    with pytest.raises(ValueError, match="the last run of `make test` failed"):
        keep(dataclasses.replace(RUN, passed=False), path)
    assert not path.exists()


def test_the_command_keeps_the_last_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(times.keep, "__defaults__", (kept,))
    monkeypatch.setattr(sys, "argv", ["times.py", "--build", str(tmp_path)])
    assert times.main() == 1
    assert "run `make test` first" in capsys.readouterr().err
    RUN.write(tmp_path / "times.json")
    assert times.main() == 0
    assert kept_times("test", kept) is not None
