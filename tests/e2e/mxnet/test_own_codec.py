"""A codec that only its own file and a table know serves whole jobs, called for by its name."""

import os
import pathlib
import shutil
from typing import Callable

import job as _job
import pytest
from job import Job

import bytescheduler


@pytest.fixture
def with_own_codec(tmp_path: pathlib.Path) -> str:
    """Return a PYTHONPATH on which the package has the extension with that codec."""
    built = os.environ.get("BS_OWN_CODEC", "")
    extensions = sorted(pathlib.Path(built).glob("_core.*.so")) if built else []
    if not extensions:
        pytest.skip("needs the extension of `make own-codec`, named by BS_OWN_CODEC")
    package = tmp_path / "with-own-codec" / "bytescheduler"
    ignored = shutil.ignore_patterns("_core.*.so", "__pycache__")
    shutil.copytree(pathlib.Path(bytescheduler.__file__).parent, package, ignore=ignored)
    shutil.copy(extensions[-1], package)
    return f"{package.parent}{os.pathsep}{_job.HERE / 'on_path'}"


def test_gradients_travel_in_it_and_none_is_lost(
    make_job: Callable[..., Job], with_own_codec: str
) -> None:
    make_job(servers=2, env={"PYTHONPATH": with_own_codec}).run("cases/own_codec.py", "0.5")


def test_workers_that_disagree_are_told_both_codings(
    make_job: Callable[..., Job], with_own_codec: str
) -> None:
    job = make_job(env={"PYTHONPATH": with_own_codec})
    workers = [job.start_worker("cases/own_codec.py", step) for step in ("0.5", "0.25")]
    for worker in workers:
        assert worker.wait() != 0
        output = worker.output()
        assert "MXNetError" in output
        assert "compressed to steps of 0.5" in output
        assert "compressed to steps of 0.25" in output
        assert "set gradient compression alike on all workers" in output
