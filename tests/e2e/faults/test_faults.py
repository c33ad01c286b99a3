"""Processes that stop and go on, links that go down and up, disks that are full."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, Dict, List

import pytest
from job import HERE, WORKERS, Job, Process

MakeJob = Callable[..., Job]
STORES = ["native", "dist_sync"]
SHORT_S = 2.0
PATIENT = {"BYTESCHEDULER_HEARTBEAT_TIMEOUT": "60s"}
STRICT = {"BYTESCHEDULER_HEARTBEAT_INTERVAL": "200ms", "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "3s"}
SOON_S = 40.0
TCP_RTO_MAX_MS = 44  # Python does not name it yet
# Stdout stays a file, for the test to read.
LOGS_NOWHERE = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh"]


def start(job: Job, store: str, steps: int) -> None:
    for _ in range(2):
        job.start_worker("steps/faulty_worker.py", store, str(steps), "0.02")
    for worker in job.workers:
        worker.wait_for_line("step 3 of")


def victim_of(job: Job, who: str) -> Process:
    return {"scheduler": job.processes[0], "server": job.servers[1], "worker": job.workers[1]}[who]


@pytest.mark.parametrize("who", ["scheduler", "server", "worker"])
def test_a_process_that_stops_for_a_while_costs_time_only(make_job: MakeJob, who: str) -> None:
    job = make_job(servers=2, env=PATIENT)
    start(job, "native", 100)
    victim = victim_of(job, who)
    victim.signal(signal.SIGSTOP)
    time.sleep(SHORT_S)
    victim.signal(signal.SIGCONT)
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    for worker in job.workers:
        assert "all sums right" in worker.output()


@pytest.mark.parametrize("who", ["scheduler", "server", "worker"])
def test_a_process_that_stops_for_too_long_is_named_and_ends_when_it_goes_on(
    make_job: MakeJob, who: str
) -> None:
    job = make_job(servers=2, env=STRICT)
    start(job, "native", 100_000)
    victim = victim_of(job, who)
    victim.signal(signal.SIGSTOP)
    try:
        others = [process for process in job.processes if process is not victim]
        named = {"scheduler": "the scheduler node", "server": r"server \d", "worker": r"worker \d"}
        for process in others:
            assert process.wait(SOON_S) not in (0, None), job.all_output()
            said = process.output()
            assert re.search(rf"{named[who]}.* silent for ", said), job.all_output()
    finally:
        victim.signal(signal.SIGCONT)
    assert victim.wait(SOON_S) != 0, job.all_output()
    assert re.search(r"\blost (the scheduler node|server|worker)", victim.output()), victim.output()


def test_a_slow_worker_is_waited_for(make_job: MakeJob) -> None:
    # Much longer than a heartbeat's deadline: it computes, and lives.
    job = make_job(env=STRICT)
    for _ in range(2):
        job.start_worker("steps/faulty_worker.py", "native", "2", "0.4!")
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()


@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_never_pushes_is_named_by_its_waiting_peers(
    make_job: MakeJob, store: str
) -> None:
    job = make_job(env={"BYTESCHEDULER_STRAGGLER_TIMEOUT": "5s"})
    for _ in range(2):
        job.start_worker("steps/faulty_worker.py", store, "2", "0.8!")
    for worker in job.workers:
        assert worker.wait(SOON_S) != 0, job.all_output()
    assert re.search(r"after 5 ?s still waiting for worker 1", job.all_output()), job.all_output()


@pytest.mark.parametrize("store", STORES)
def test_a_full_disk_for_the_logs_harms_no_process(make_job: MakeJob, store: str) -> None:
    job = make_job(env={"BYTESCHEDULER_LOG_LEVEL": "debug"}, prefix=LOGS_NOWHERE)
    for _ in range(2):
        job.start_worker("steps/faulty_worker.py", store, "20", "0.01")
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    for worker in job.workers:
        assert "all sums right" in worker.output()
        assert "native back end" not in worker.output()


def test_a_full_disk_behind_bslaunch_loses_lines_and_nothing_else(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "1"]
    command += ["--timeout", "100", "--", sys.executable, str(WORKERS / "steps/faulty_worker.py")]
    command += ["native", "20", "0.01"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    said = "bslaunch: cannot write to standard output: No space left on device; lines of"
    assert done.stderr.count(said) == 1, done.stderr


def in_a_network_of_its_own(arguments: List[str]) -> str:
    """Run link_faults.py where its loopback is its own; skip where that is not to be had."""
    command = [str(HERE / "slow_link.sh"), "1gbit", sys.executable, str(HERE / "link_faults.py")]
    env: Dict[str, str] = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(
        command + arguments, env=env, cwd=HERE, capture_output=True, text=True, timeout=180
    )
    if done.returncode == 77:
        pytest.skip("no network of its own to be had here: " + done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.serial
def test_a_link_that_was_away_for_long_is_noticed_soon() -> None:
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, 3000)
        except OSError:
            pytest.skip("this kernel has no TCP_RTO_MAX_MS")
    # Left alone TCP tries after 6 to 8 seconds, and then after 12 to 16: too late.
    assert "all sums right" in in_a_network_of_its_own(["--down", "8", "--patience", "12s"])


def test_a_stock_host_that_vanishes_is_named() -> None:
    """Nobody sends anything, and no connection is closed."""
    said = in_a_network_of_its_own(["--vanish", "--patience", "3s"])
    assert re.search(r"lost (worker|server) 0 \(.*\): connection closed", said), said


def test_many_faults_one_after_the_other() -> None:
    said = in_a_network_of_its_own(["--soak", "8", "--patience", "60s"])
    assert "all sums right" in said
