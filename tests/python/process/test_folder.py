"""Where commands keep what they need while they run, and what they say where there is no place."""

import errno
import tempfile
from typing import NoReturn

import pytest
from click_runner import Runner

from bytescheduler._advise import recording
from bytescheduler._launch.local_job import Job
from bytescheduler._process.folder import temporary_folder
from bytescheduler.commands import bench
from bytescheduler.errors import Error

WHY = "no temporary folder: No usable temporary directory found; let TMPDIR name a folder that can"


def test_it_is_there_and_then_it_is_gone() -> None:
    with temporary_folder() as folder:
        (folder / "a").write_text("b")
    assert not folder.exists()


@pytest.fixture
def _no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)


@pytest.mark.usefixtures("_no_place")
def test_without_a_temporary_folder_the_error_names_the_variable() -> None:
    with pytest.raises(Error, match=WHY), temporary_folder():
        raise AssertionError


@pytest.mark.usefixtures("_no_place")
def test_bench_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMLC_ROLE", raising=False)
    result = Runner().invoke(bench.bench, [])
    assert result.exit_code == 1
    assert WHY in result.output


@pytest.mark.usefixtures("_no_place")
def test_a_job_that_cannot_be_recorded_does_not_run(capfd: pytest.CaptureFixture[str]) -> None:
    def run(job: Job) -> NoReturn:
        raise AssertionError

    assert recording.record(Job(["true"], 1, 1, ["true"]), "profile.json", run) == 1
    assert f"bytescheduler: no profile can be recorded: {WHY}" in capfd.readouterr().err
