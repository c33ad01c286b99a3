"""A second job on the ports of one that is there, by mistake, or of one that has just ended."""

import dataclasses
import pathlib
import signal
import time
from typing import Callable, List, Tuple

import pytest
from job import Job, Process

MakeJob = Callable[..., Job]
FreePort = Callable[[], int]
SOON_S = 30.0
STEPS = "60"
IN_USE = "the port is in use: end what listens there (a job that still runs?), or give all nodes"
NOT_HERE = "nodes of another job need another DMLC_PS_ROOT_PORT"
ANOTHER_JOB = "lost the scheduler node: another job has its address"
DROPPED = "dropped a message from worker 0: it is of another job"
OTHER_SETTINGS = "has BYTESCHEDULER_DETERMINISTIC=1 instead of BYTESCHEDULER_DETERMINISTIC=0, which"


@pytest.mark.parametrize("first_waits", [False, True], ids=["it trains", "it waits"])
def test_nodes_of_a_second_job_are_told_the_cure_and_the_first_trains_on(
    make_job: MakeJob, free_port: FreePort, tmp_path: pathlib.Path, first_waits: bool
) -> None:
    """Those of other settings also where the first has no workers yet."""
    job = make_job(ports=[free_port(), 0])
    first = list(job.processes)
    second: List[Process] = []
    other = {"BYTESCHEDULER_DETERMINISTIC": "1"} if first_waits else {}

    def start_worker(of: str) -> None:
        (first if of == "first" else second).append(
            job.start_worker(
                *("steps/restarted_worker.py", str(tmp_path / of), STEPS),
                env=None if of == "first" else other,
            )
        )

    def train() -> None:
        for _ in range(2):
            start_worker("first")
        job.workers[0].wait_for_line("step 3 done")

    if not first_waits:
        train()
    else:
        first[0].wait_for_line("scheduler: server ")
    second += [job.start_scheduler("second scheduler"), job.start_server(0, "second server", other)]
    if first_waits:
        for process in second:
            process.wait(SOON_S)
        train()
    for _ in range(2):
        start_worker("second")
    for process in second:
        assert process.wait(SOON_S) == 1, job.all_output()
        text = OTHER_SETTINGS if first_waits else NOT_HERE
        text = IN_USE if process is second[0] else text
        assert text in process.output(), f"{process.name}:\n{job.all_output()}"
    for process in first:
        assert process.wait() == 0, job.all_output()
    for worker in job.workers[:2]:
        assert "every step counts once" in worker.output(), job.all_output()


@dataclasses.dataclass
class Sleep:
    """A worker that sleeps through the end of its job, and another job at the same addresses."""

    make_job: MakeJob
    ports: List[int]
    folder: pathlib.Path
    step: int = 3
    steps: int = 4

    def begin(self, base: int) -> "Tuple[Job, Process, pathlib.Path]":
        """Start a job, whose worker waits for the step then."""
        job = self.make_job(workers=1, servers=1, ports=self.ports)
        files = self.folder / f"steps of {base}"
        files.mkdir(parents=True)
        for earlier in range(1, self.step):
            (files / str(earlier)).touch()
        arguments = (str(files), str(base), str(self.steps))
        worker = job.start_worker("steps/stepping_worker.py", *arguments)
        worker.wait_for_line(f"step {self.step} waits")
        return job, worker, files

    def is_told(self) -> bool:
        """Let the worker wake up; return whether its push came before it knew of a lost node."""
        old, sleeper, old_files = self.begin(1000)
        sleeper.signal(signal.SIGSTOP)
        for process in old.processes:
            if process is not sleeper:
                process.kill()
        new, worker, new_files = self.begin(5000)
        (old_files / str(self.step)).touch()
        # The scheduler node, which tells it that its job is over, does so when its push has come.
        new.processes[0].signal(signal.SIGSTOP)
        sleeper.signal(signal.SIGCONT)
        end = time.monotonic() + SOON_S / 2  # less than the time-out of the node that is stopped
        try:
            while DROPPED not in new.servers[0].output() and sleeper.running():
                assert time.monotonic() < end, sleeper.output()
                time.sleep(0.02)
        finally:
            new.processes[0].signal(signal.SIGCONT)
        assert sleeper.wait(SOON_S) == 1, new.all_output()
        for later in range(self.step, self.steps + 1):
            (new_files / str(later)).touch()
        for process in new.processes:
            assert process.wait(SOON_S) == 0, new.all_output()
        assert "every sum is right" in worker.output()
        return DROPPED in new.servers[0].output() and ANOTHER_JOB in sleeper.output()


def test_a_worker_that_slept_through_the_end_of_its_job_counts_nothing_in_the_next(
    make_job: MakeJob, free_port: FreePort, tmp_path: pathlib.Path
) -> None:
    """It is at the same step, so its push would fit; it is told that its job is over.

    A second after it woke up it knows that its scheduler node is lost, so a busy machine may need
    another try.
    """
    tries = [
        Sleep(make_job, [free_port(), free_port()], tmp_path / str(number)) for number in range(4)
    ]
    assert any(sleep.is_told() for sleep in tries)
