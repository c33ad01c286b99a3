"""Whole jobs of TensorFlow: weights, functions, mistakes, losses.

Cases share jobs, as an import of TensorFlow takes seconds of the processor.
"""

import pathlib
import re
from typing import Callable

import pytest
from direct_job import Direct
from job import Job

from bytescheduler._process.ports import Ports

pytest.importorskip("tensorflow")

MakeJob = Callable[..., Job]


def test_weights_equal_the_weights_of_one_process(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "weights"):
        assert output.count("is the same") == 8, output


def test_functions_with_servers(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "uses"):
        assert output.count(" holds") == 23, output
        assert "shutdown() has left the job" in output


def test_steps_begin_before_the_means_of_the_step_before(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "steps"):
        assert output.count(" holds") == 4, output


def test_updates_under_way_are_seen_and_end(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "looks"):
        assert output.count(" holds") == 4, output


def test_several_devices_of_each_worker(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "mirrored"):
        assert output.count(" holds") == 3, output


def test_three_workers_without_servers_and_the_loss_of_the_third(tmp_path: pathlib.Path) -> None:
    with Ports() as ports:
        port = ports.free()
    job = Direct(tmp_path, port, 3, MASTER_PORT=str(port), BYTESCHEDULER_DETERMINISTIC="1")
    try:
        job.start("tensorflow/in_job.py", "sgd", "killed")
        assert job.codes() == [1, 1, -9], job.all_said()
        for rank in range(2):
            assert job.said(rank).count("is the same") == 4
            assert "UnavailableError: Graph execution error" in job.said(rank)
            named = re.search(r"first/(kernel|bias)(:0)?': .*worker 2\b", job.said(rank))
            assert named is not None, job.said(rank)
    finally:
        job.close()
