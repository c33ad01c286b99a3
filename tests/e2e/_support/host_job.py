"""Jobs of restarted_worker.py, each node of which is a host of its own."""

import pathlib
import re
import time
from typing import List, Tuple

from job import Job, Process
from lab import Lab

HOSTS = 5
SCHEDULER, SERVERS, WORKERS = 0, (1, 2), (3, 4)
PORTS = [9091, 9092, 9093]
CUT = {"BYTESCHEDULER_PARTITION": "4KiB"}  # so that every sum needs both servers
# Much less than the time-outs of those who should not wait for them.
SOON_S = 40.0


def node_of(lab: Lab, host: int) -> str:
    """Return the pattern of what messages call the node of this host."""
    role = "the scheduler node" if host == SCHEDULER else r"server \d"
    role = r"worker \d" if host in WORKERS else role
    return rf"{role} \({re.escape(lab.address(host))}:\d+\)"


def start(job: Job, folder: pathlib.Path, steps: int) -> None:
    for _ in WORKERS:
        job.start_worker("steps/restarted_worker.py", str(folder / "checkpoint"), str(steps))


def wait_for_step(job: Job, step: int) -> None:
    for worker in job.workers:
        worker.wait_for_line(f"step {step} done")


def step_of(job: Job) -> int:
    return max(int(step) for step in re.findall(r"step (\d+) done", job.workers[0].output()))


def assert_every_step_counts_once(job: Job) -> None:
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, last_words(job)
    for worker in job.workers:
        assert "every step counts once" in worker.output(), last_words(job)


def last_words(job: Job) -> str:
    """Return what all said but for their steps and their sums."""
    lines = job.all_output().splitlines()
    steps = re.compile(r"pushes|counted|step \d+ done|in the end")
    return "\n".join(line for line in lines if not steps.match(line))


def ends_of(job: Job, processes: List[Process]) -> "List[Tuple[Process, float]]":
    """Return them in the order in which they end, and after how many seconds each does."""
    began = time.monotonic()
    ended: List[Tuple[Process, float]] = []
    while processes:
        first = job.wait_for_one(processes, SOON_S)
        ended.append((first, time.monotonic() - began))
        processes = [process for process in processes if process is not first]
    for process, seconds in ended:
        said = [line for line in process.output().splitlines() if "step" not in line]
        print(f"{process.name} after {seconds:.1f} s:", *said[-3:], sep="\n    ")
    return ended


def assert_all_name(job: Job, processes: List[Process], pattern: str) -> float:
    """Wait for the end of all, who must tell `pattern`; return the seconds until the last."""
    ends = ends_of(job, processes)
    for process, _ in ends:
        assert process.wait() != 0, last_words(job)
        assert re.search(pattern, process.output()), f"{process.name}:\n{last_words(job)}"
    return ends[-1][1]
