"""A worker that waits in a guard learns that another one is lost, left, or that it is to end."""

import re
import signal
import sys
from typing import Callable

import pytest
from job import WORKERS, Job
from launched import run

MakeJob = Callable[..., Job]
STRICT = {"BYTESCHEDULER_HEARTBEAT_INTERVAL": "200ms", "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "3s"}
SOON_S = 25.0  # a silent worker is lost after 30 s without that


def start(job: Job, case: str) -> None:
    for _ in range(2):
        job.start_worker("torch_faults/faults.py", case)


def waiting(job: Job) -> int:
    """Return the number of the worker that waits for the other one."""
    first = job.wait_for_text(job.workers, "made step 3")
    return job.workers.index(first)


def test_a_killed_worker_is_named_in_the_forward_pass(make_job: MakeJob) -> None:
    job = make_job()
    start(job, "slow")
    left = job.workers[waiting(job)]
    loads = left.output().count("loads 12")
    left.wait_for_line(f"loads 12, time {loads + 2}")  # other threads and forked workers run on
    job.wait_for_text(job.workers, "waits").kill()
    assert left.wait() == 1
    assert "forward of step 4: lost worker 1" in left.output()
    assert "PeerLost" in left.output()


def test_a_silent_worker_is_named_within_the_time_of_heartbeats(make_job: MakeJob) -> None:
    job = make_job(env=STRICT)
    start(job, "slow")
    left = job.workers[waiting(job)]
    silent = job.wait_for_text(job.workers, "waits")
    silent.signal(signal.SIGSTOP)  # no connection of it closes, as when a host loses its power
    try:
        assert left.wait(SOON_S) == 1
    finally:
        silent.signal(signal.SIGCONT)
    assert re.search(r"forward of step 4: .*worker 1.* silent for ", left.output()), left.output()


def test_a_worker_with_fewer_steps_is_named(make_job: MakeJob) -> None:
    job = make_job()
    start(job, "short")
    more = job.workers[waiting(job)]
    assert more.wait() == 1
    assert "forward of step 4: worker 1 left the job" in more.output()


@pytest.mark.parametrize("changing", [0, 1])
def test_a_buffer_of_another_shape_is_named_on_all_workers(
    make_job: MakeJob, changing: int
) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("torch/buffers.py", str(changing))
    assert [worker.wait() for worker in job.workers] == [1, 1], job.all_output()
    shapes = ["(1048576,)", "(1048576,)"]
    shapes[changing] = "(2, 3)"
    said = (
        f"buffer large: it is torch.float32 of shape {shapes[1]} here and torch.float32 of shape "
        f"{shapes[0]} on worker 0"
    )
    for worker in job.workers:
        assert said in worker.output()
    assert f"step 3: {said}" in job.all_output()


@pytest.mark.parametrize(
    ("case", "number"), [("first", 1), pytest.param("later", 5, marks=pytest.mark.nightly)]
)
def test_a_sum_that_meets_the_least_under_one_name_is_an_error_on_all_workers(
    make_job: MakeJob, case: str, number: int
) -> None:
    job = make_job()
    for _ in range(2):
        job.start_worker("torch_faults/operations.py", case)
    assert [worker.wait() for worker in job.workers] == [1, 1], job.all_output()
    title = f"allreduce #{number} of 'loss'"
    for worker in job.workers:
        assert f"worker 0 calls '{title}, op=Sum or Average'" in worker.output()
        assert f"worker 1 calls '{title}, op=Min, 3 elements of float32'" in worker.output()


def test_ctrl_c_ends_a_wait_in_a_guard(make_job: MakeJob) -> None:
    job = make_job()
    start(job, "slow")
    left = job.workers[waiting(job)]
    left.signal(signal.SIGINT)
    assert left.wait(30.0) != 0
    assert "forward of step 4: interrupted" in left.output()


def test_under_torchrun_a_killed_worker_is_named_before_the_rest_is_ended() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = run([*torchrun, "--standalone", str(WORKERS / "torch_faults/faults.py"), "dies"], code=1)
    # On a busy machine the guard may raise before the signal comes.
    said = r"^bytescheduler(: the job failed|\.errors\.PeerLost): .*\blost (worker|server) 1 "
    assert re.search(said, done.stdout, re.M), done.stdout


def test_a_spawned_worker_that_raises_is_named_with_its_reason_by_both(
    free_port: Callable[[], int],
) -> None:
    script = str(WORKERS / "torch/spawned.py")
    # The parent may end worker 0 before it hears of the failure.
    done = run([sys.executable, script, str(free_port())], code=1)
    assert "worker 1: the reason\n" in done.stdout
    assert re.search(r"^Process SpawnProcess-2:$", done.stdout, re.M), done.stdout
    assert re.search(r"^RuntimeError: the reason$", done.stdout, re.M), done.stdout
    heard = re.search(r"^worker 0: (.*)$", done.stdout, re.M)
    told = "worker 1 gave up: exit code 1, after RuntimeError: the reason"
    assert heard is None or told in heard.group(1), done.stdout
