"""What a call costs the Python thread: a push-pull of 1 KB, 1,000 keys, stock store and ours.

Run it as ``python -m benchmarks.call_overhead``: it starts a job of one worker and one server for
each of the two on this host, one after the other, and prints microseconds a call, the median of
some rounds over all keys: as time that passes, and as time of the processor on the calling thread,
which the other threads and processes of the job cannot lengthen.  Only the call itself is measured;
nobody waits for its result until the round has been timed.
"""

import statistics
import sys
import time

from . import local_job

KEYS, FLOATS, ROUNDS = 1000, 256, 7


def measure(kind: str) -> None:
    """Report the seconds of each round, of both clocks; runs in the worker."""
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
        thread.append(time.thread_time() - start_thread)
        wall.append(time.perf_counter() - start)
        mx.nd.waitall()
    for name, seconds in (("wall", wall), ("thread", thread)):
        local_job.worker_waits("BEGIN", name)
        local_job.worker_waits("END", name, seconds)


def run_job(kind: str) -> None:
    """Run a job to its end and print microseconds a call."""
    worker = [sys.executable, "-m", "benchmarks.call_overhead", kind]
    env = {"BYTESCHEDULER_BACKEND": "native"} if kind == "ours" else {}
    wall_us, thread_us = (
        statistics.median(row.seconds) / KEYS * 1e6
        for row in local_job.run(local_job.NODES[kind], worker, env)
    )
    print(
        f"{kind}: {wall_us:.1f} us a call, "
        f"{thread_us:.1f} us of the calling thread's processor time"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        for each in ("stock", "ours"):
            run_job(each)
