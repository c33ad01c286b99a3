"""A worker under `bslaunch` whose job does not come together ends, though MXNet's store waits."""

import pathlib
import signal
import subprocess
import sys
from typing import Callable, Iterator

import pytest
from job import Process, without_settings

from bytescheduler._launch.launcher import Launcher, node_command

SCRIPT = """
import mxnet as mx
from bytescheduler.mxnet import ScheduledKVS
print("creating", flush=True)
kvs = ScheduledKVS(mx.kv.create("dist_sync"))
print("rank", kvs.rank, flush=True)
{then}
"""
LIMIT_S = 90.0
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Start a role through `bslaunch`; whatever still runs is killed at the end."""
    env = {**without_settings(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with Launcher(1, 1, env, folder=tmp_path) as launcher:
        launcher.reserve_port()

        def run(role: str, then: str = "kvs.close()", **more: str) -> Process:
            command = [sys.executable, "-c", SCRIPT.format(then=then)] if role == "worker" else []
            return Process.start(launcher, role, [*node_command(), *command], tmp_path, env=more)

        yield run


def test_without_a_scheduler_node(start: Start) -> None:
    worker = start("worker", BYTESCHEDULER_TIMEOUT="2s")
    assert worker.wait(LIMIT_S) == 1
    assert "waiting for the scheduler node at 127.0.0.1:" in worker.output()
    assert "no response from the scheduler node at 127.0.0.1:" in worker.output()


def test_without_a_server(start: Start) -> None:
    scheduler = start("scheduler", BYTESCHEDULER_TIMEOUT="25s")
    scheduler.wait_for_line("listening on")
    worker = start("worker", BYTESCHEDULER_TIMEOUT="60s")
    worker.wait_for_line("creating")
    assert scheduler.wait(LIMIT_S) == 1
    assert "still missing 1 of 1 server" in scheduler.output()
    assert worker.wait(LIMIT_S) == 1
    assert "this worker was aborted before it was known to be in the job" in worker.output()
    assert "if the scheduler node at 127.0.0.1:" in worker.output()


def test_a_job_that_comes_together_gives_the_workers_own_code(start: Start) -> None:
    nodes = [start("scheduler"), start("server")]
    worker = start("worker", then="kvs.close(); raise SystemExit(7)")
    assert worker.wait(LIMIT_S) == 7, worker.output()
    assert "rank 0" in worker.output()
    for node in nodes:
        assert node.wait(LIMIT_S) == 0, node.output()
        # bslaunch looks whether the scheduler node is there; nobody is to wonder about that.
        assert "dropped" not in node.output()
        assert "WARNING" not in node.output()


def test_sigterm_reaches_the_training_process(start: Start) -> None:
    start("scheduler")
    server = start("server")
    worker = start("worker", then="import time; time.sleep(600)")
    worker.wait_for_line("rank 0")
    worker.signal(signal.SIGTERM)
    assert worker.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert server.wait(LIMIT_S) == 1
    assert "lost worker 0" in server.output()


IMPORTS = """
import os, time
if os.environ["DMLC_WORKER_ID"] == "1":
    time.sleep({seconds})  # as an import may take
from bytescheduler._native import Worker
from bytescheduler._started import ready
ready.tell_register()
worker = Worker.open()
place = worker.place
ready.tell_place(place)
worker.barrier()
worker.close()
ready.tell_left(place)
print("well done", flush=True)
"""


def launched(seconds: float, timeout: str, code: int) -> str:
    command = [*node_command(), "--local", "-w", "2", "-s", "1", "--grace", "3", "--"]
    env = {**without_settings(), "BYTESCHEDULER_RENDEZVOUS_TIMEOUT": timeout}
    script = IMPORTS.format(seconds=seconds)
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def test_a_worker_that_imports_for_longer_than_the_timeout_is_waited_for() -> None:
    output = launched(seconds=10, timeout="8s", code=0)
    assert "waiting for 1 of 2 workers, whose processes live" in output
    assert output.count("well done") == 2


def test_a_worker_that_never_comes_is_waited_for_three_times_as_long() -> None:
    output = launched(seconds=600, timeout="5s", code=1)
    assert "rendezvous: after 15 s still missing 1 of 2 workers" in output
    assert "bslaunch says that the missing workers' processes live, but no job waits" in output
