"""A worker under `bslaunch` whose job does not come together ends, though MXNet's store waits."""

import contextlib
import os
import pathlib
import signal
import sys
from typing import Callable, Dict, Iterator

import pytest
from job import Process, free_port

SCRIPT = """
import mxnet as mx
from bytescheduler.mxnet import ScheduledKVS
print("creating", flush=True)
kvs = ScheduledKVS(mx.kv.create("dist_sync"))
print("rank", kvs.rank, flush=True)
{then}
"""
BSLAUNCH = [sys.executable, "-c", "from bytescheduler.launch import main; main()"]
LIMIT_S = 90.0
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Start a role through `bslaunch`; whatever still runs is killed at the end."""
    own = ("DMLC_", "BYTESCHEDULER_")
    env: Dict[str, str] = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    env.update(
        DMLC_PS_ROOT_URI="127.0.0.1",
        DMLC_PS_ROOT_PORT=str(free_port()),
        DMLC_NUM_WORKER="1",
        DMLC_NUM_SERVER="1",
        OMP_NUM_THREADS="1",
        PYTHONUNBUFFERED="1",
    )
    with contextlib.ExitStack() as stack:

        def run(role: str, then: str = "kvs.close()", **more: str) -> Process:
            command = [*BSLAUNCH, sys.executable, "-c", SCRIPT.format(then=then)]
            if role != "worker":
                command = BSLAUNCH
            process = Process(role, command, {**env, "DMLC_ROLE": role, **more}, tmp_path)
            stack.callback(lambda: process.running() and process.kill())
            return process

        yield run


def test_without_a_scheduler_node(start: Start) -> None:
    worker = start("worker", BYTESCHEDULER_TIMEOUT="2s")
    assert worker.wait(LIMIT_S) == 1
    assert "waiting for the scheduler node at 127.0.0.1:" in worker.output()
    assert "no answer from the scheduler node at 127.0.0.1:" in worker.output()


def test_without_a_server(start: Start) -> None:
    scheduler = start("scheduler", BYTESCHEDULER_TIMEOUT="25s")
    scheduler.wait_for_line("listening on")
    worker = start("worker", BYTESCHEDULER_TIMEOUT="60s")
    worker.wait_for_line("creating")
    assert scheduler.wait(LIMIT_S) == 1
    assert "still missing 1 of 1 servers" in scheduler.output()
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
    os.kill(worker._popen.pid, signal.SIGTERM)
    assert worker.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert server.wait(LIMIT_S) == 1
    assert "lost worker 0" in server.output()
