"""What a call costs the Python thread: a push-pull of 1 KB, 1,000 keys, stock store and ours.

Run it as ``python -m benchmarks.call_overhead``: it starts a job of one worker and one server for
each of the two on this host, one after the other, and prints microseconds a call, the median of
some rounds over all keys: as time that passes, and as time of the processor on the calling thread,
which the other threads and processes of the job cannot lengthen.  Only the call itself is measured;
nobody waits for its result until the round has been timed.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Dict, List

KEYS, FLOATS, ROUNDS, PATIENCE_S = 1000, 256, 7, 300.0
ROLES = {
    "stock": [sys.executable, "-c", "import mxnet"],
    "ours": [sys.executable, "-m", "bytescheduler.server"],
}


def measure(kind: str) -> None:
    """Print microseconds a call; runs in the worker."""
    import mxnet as mx

    import bytescheduler.mxnet  # noqa: F401

    kvs = mx.kv.create("bytescheduler" if kind == "ours" else "dist_sync")
    values = [mx.nd.ones((FLOATS,)) for _ in range(KEYS)]
    outs = [mx.nd.ones((FLOATS,)) for _ in range(KEYS)]
    kvs.init(list(range(KEYS)), values)
    wall, thread = [], []
    for _ in range(ROUNDS):
        start, start_thread = time.perf_counter(), time.thread_time()
        for key in range(KEYS):
            kvs.pushpull(key, values[key], out=outs[key], priority=-key)
        thread.append((time.thread_time() - start_thread) / KEYS * 1e6)
        wall.append((time.perf_counter() - start) / KEYS * 1e6)
        mx.nd.waitall()
    print(
        f"{kind}: {statistics.median(wall):.1f} us a call, "
        f"{statistics.median(thread):.1f} us of the calling thread's processor time"
    )


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(kind: str) -> None:
    """Run scheduler node, server and worker to their end."""
    env: Dict[str, str] = {
        **os.environ,
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "1",
        "BYTESCHEDULER_LOG_LEVEL": "warning",
    }
    worker_env = {"DMLC_ROLE": "worker"}
    if kind == "ours":
        worker_env["BYTESCHEDULER_BACKEND"] = "native"
    processes: List[subprocess.Popen[bytes]] = []
    try:
        for role in ("scheduler", "server"):
            processes.append(subprocess.Popen(ROLES[kind], env={**env, "DMLC_ROLE": role}))
        command = [sys.executable, "-m", "benchmarks.call_overhead", kind]
        worker = subprocess.Popen(command, env={**env, **worker_env})
        processes.append(worker)
        if worker.wait(PATIENCE_S) != 0:
            raise SystemExit(f"the {kind} worker failed")
        for process in processes:
            process.wait(PATIENCE_S)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        for each in ("stock", "ours"):
            run_job(each)
