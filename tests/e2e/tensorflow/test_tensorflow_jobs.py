"""Whole jobs of TensorFlow: weights, functions, mistakes, losses."""

import pathlib
import re
import signal
from typing import Callable

import pytest
from direct_job import Direct
from job import Job

from bytescheduler._process.ports import Ports

pytest.importorskip("tensorflow")

MakeJob = Callable[..., Job]


def test_weights_and_functions_with_servers(make_job: MakeJob) -> None:
    for output in make_job(forks=False).run("tensorflow/in_job.py", "identity", "uses"):
        assert output.count("is the same") == 6, output
        assert output.count(" holds") == 14, output
        assert "shutdown() has left the job" in output


def test_weights_without_servers_by_the_variables_of_torchrun(tmp_path: pathlib.Path) -> None:
    with Ports() as ports:
        port = ports.free()
    job = Direct(tmp_path, port, 3, MASTER_PORT=str(port), BYTESCHEDULER_DETERMINISTIC="1")
    try:
        job.start("tensorflow/in_job.py", "identity")
        assert job.codes() == [0, 0, 0], job.all_said()
        for rank in range(3):
            assert job.said(rank).count("is the same") == 6
    finally:
        job.close()


@pytest.mark.parametrize(
    ("case", "sentence"), [("dies", "lost worker 1"), ("short", "worker 1 left the job")]
)
def test_fit_ends_with_an_error_that_names_the_worker(
    make_job: MakeJob, case: str, sentence: str
) -> None:
    job = make_job(forks=False)
    for _ in range(2):
        job.start_worker("tensorflow/ending.py", case)
    codes = [worker.wait() for worker in job.workers]
    outputs = [worker.output() for worker in job.workers]
    told = [output for output in outputs if "UnavailableError: " in output]
    assert len(told) == 1, job.all_output()
    assert sorted(codes) in ([-9, 1], [0, 1])
    assert sentence in told[0]
    assert re.search(r"UnavailableError: .*'first/(kernel|bias):0'", told[0]), told[0]


def test_ctrl_c_ends_a_wait_of_fit(make_job: MakeJob) -> None:
    job = make_job(forks=False)
    for _ in range(2):
        job.start_worker("tensorflow/ending.py", "waits")
    silent = job.wait_for_text(job.workers, "waits")
    (left,) = [worker for worker in job.workers if worker is not silent]
    left.wait_for_line("made step 3")
    left.signal(signal.SIGINT)
    assert left.wait(30.0) != 0
    assert "KeyboardInterrupt" in left.output()
    silent.kill()
