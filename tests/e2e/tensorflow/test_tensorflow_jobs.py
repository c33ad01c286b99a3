"""Whole jobs of TensorFlow: weights, functions, mistakes, losses.

Cases share jobs, as an import of TensorFlow takes seconds of the processor.
"""

import pathlib
import re
import time
from typing import Callable

import pytest
from direct_job import Direct
from job import Job
from looked_at import look_at

from bytescheduler._advise import profile
from bytescheduler._process.ports import Ports

pytest.importorskip("tensorflow")

MakeJob = Callable[..., Job]
HEARTBEAT_S = 30.0  # the default of BYTESCHEDULER_HEARTBEAT_TIMEOUT
MARGIN_S = 60.0  # of a busy machine
CHANGE = " from the next rounds on"  # of partitions, in the log
TUNED = {
    "BYTESCHEDULER_TUNING": "once",
    "BYTESCHEDULER_TUNING_CACHE": "tuning.json",
    "BYTESCHEDULER_TIMELINE": "t.json",
    "BYTESCHEDULER_LOG_LEVEL": "debug",
    "PYTHONPATH": "",  # the tuner imports scipy, which on_path hides
}


def test_weights_equal_the_weights_of_one_process(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "weights"):
        assert output.count("is the same") == 8, output


def test_functions_with_servers(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "uses"):
        assert output.count(" holds") == 27, output
        assert "'traced before': this worker is in no job: call init() before" in output
        assert "shutdown() has left the job" in output


def test_steps_begin_before_the_means_of_the_step_before(make_job: MakeJob) -> None:
    for output in make_job().run("tensorflow/in_job.py", "steps"):
        assert output.count(" holds") == 5, output


def test_updates_under_way_are_seen_and_end_as_does_a_step_that_one_worker_leaves_out(
    make_job: MakeJob,
) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("tensorflow/in_job.py", "looks", "uneven")
    assert sorted(worker.wait() for worker in job.workers) == [0, 1], job.all_output()
    for worker in job.workers:
        assert worker.output().count(" holds") == 5, worker.output()
    assert job.all_output().count("one step more: ") == 1
    assert re.search(r"uneven(:0)?': worker 1 left the job", job.all_output()), job.all_output()


@pytest.mark.nightly
def test_a_step_for_which_a_worker_is_late_ends(make_job: MakeJob) -> None:
    job = make_job(env={"BYTESCHEDULER_STRAGGLER_TIMEOUT": "10"})
    for _ in range(2):
        job.start_worker("tensorflow/in_job.py", "late")
    for worker in job.workers:
        worker.wait()
    assert job.all_output().count("one step late: ") == 1, job.all_output()
    waits = (
        r"key='late(:0)?' .* still waiting for worker [01] to push key 'late(:0)?' \(round 2\)\n\t"
    )
    assert re.search(waits, job.all_output()), job.all_output()


def test_several_devices_of_each_worker_in_a_job_that_is_watched_recorded_and_tuned(
    make_job: MakeJob, free_port: Callable[..., int]
) -> None:
    port = free_port(following=3)  # each process of the job listens on the next
    job = make_job(env={"BYTESCHEDULER_METRICS": str(port)})
    for _ in range(2):
        job.start_worker("tensorflow/in_job.py", "mirrored", "watched", env=TUNED)
    for worker in job.workers:
        worker.wait_for_line("under way")
        assert worker.output().count(" holds") == 3, worker.output()
    found = look_at(port, 3)
    for row in found["workers"]:
        assert row["steps_per_s"] > 0
        assert row["pushed_bytes_per_s"] > 0
    end = time.monotonic() + 180
    while job.all_output().count(CHANGE) < 2 and time.monotonic() < end:
        time.sleep(0.2)
    assert job.all_output().count(CHANGE) > 1, job.all_output()
    (job.folder / "stop").touch()
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    recorded = profile.from_timeline(job.folder / "t-r0.json")
    assert recorded.framework == "tensorflow"
    names = [layer.name for layer in recorded.layers if layer.name.startswith("watched")]
    assert {name.partition(":")[0] for name in names} == {f"watched{at}" for at in range(6)}


def test_three_workers_without_servers_and_the_loss_of_the_third(tmp_path: pathlib.Path) -> None:
    with Ports() as ports:
        port = ports.free()
    settings = {"BYTESCHEDULER_DETERMINISTIC": "1", "TF_CONFIG": "this is not read"}
    job = Direct(tmp_path, port, 3, MASTER_PORT=str(port), **settings)
    try:
        job.start("tensorflow/in_job.py", "sgd", "killed")
        assert job.codes() == [1, 1, -9], job.all_said()
        killed = re.search(r"killed at (\S+)", job.said(2))
        assert killed is not None, job.said(2)
        for rank in range(2):
            assert job.said(rank).count("is the same") == 4
            error = re.search(r"UnavailableError at (\S+): Graph execution err", job.said(rank))
            assert error is not None, job.said(rank)
            assert float(error.group(1)) - float(killed.group(1)) < HEARTBEAT_S + MARGIN_S
            named = re.search(r"first/(kernel|bias)(:0)?': .*worker 2\b", job.said(rank))
            assert named is not None, job.said(rank)
    finally:
        job.close()
