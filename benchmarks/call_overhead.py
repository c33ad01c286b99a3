"""What a call costs the Python thread: a push-pull of 1 KB, 1,000 keys, stock stores and ours.

Run it as ``python -m benchmarks.call_overhead``: it starts a job of one worker and one server for
each kind of store on this host (``kvstore``: ours on stock servers), one after the other, and
prints microseconds a call, the median of some rounds over all keys: as time that passes, and as
time of the processor on the calling thread, which the other threads and processes of the job cannot
lengthen.  Only the call itself is measured; nobody waits for its result until the round has been
timed.

Each store is measured without an updater, with one that adds the sum to the weights, and with SGD.
Where stock MXNet updates on its servers, as ``dist_sync`` does, its caller has nothing to do with
it; ``local`` updates on the caller's thread, as ours does.
"""

import statistics
import sys
import time
from typing import Any, Callable, Iterator, Tuple

from . import local_job

KEYS, FLOATS, ROUNDS = 1000, 256, 7


def _stores(kind: str) -> "Iterator[Tuple[str, Any]]":
    """Make the stores to measure, each when the one before has been."""
    import mxnet as mx

    from bytescheduler.mxnet import ScheduledKVS

    wrap: Callable[[Any], Any] = (lambda kvs: kvs) if kind == "stock" else ScheduledKVS
    yield "dist_sync", wrap(mx.kv.create("dist_sync"))
    if kind != "ours":  # under bslaunch a local store is as any other
        yield "local", wrap(mx.kv.create("local"))


def _report(name: str, kvs: Any) -> None:  # noqa: ANN401 - MXNet has no types
    import mxnet as mx

    values = [mx.nd.ones((FLOATS,)) for _ in range(KEYS)]
    outs = [mx.nd.ones((FLOATS,)) for _ in range(KEYS)]
    wall, thread = [], []
    for _ in range(ROUNDS):
        start, start_thread = time.perf_counter(), time.thread_time()
        for key in range(KEYS):
            kvs.pushpull(key, values[key], out=outs[key], priority=-key)
        thread.append(time.thread_time() - start_thread)
        wall.append(time.perf_counter() - start)
        mx.nd.waitall()
    for clock, seconds in (("wall", wall), ("thread", thread)):
        local_job.worker_waits("BEGIN", f"{name}:{clock}")
        local_job.worker_waits("END", f"{name}:{clock}", seconds)


def _add(_key: object, total: Any, weight: Any) -> None:  # noqa: ANN401 - MXNet has no types
    weight += total


def measure(kind: str) -> None:
    """Report the seconds of each round, of both clocks; runs in the worker."""
    import mxnet as mx

    for name, kvs in _stores(kind):
        kvs.init(list(range(KEYS)), [mx.nd.ones((FLOATS,)) for _ in range(KEYS)])
        _report(f"{name},no-updater", kvs)
        if kind != "stock" or name == "local":  # a stock worker never calls it
            kvs._set_updater(_add)
            _report(f"{name},adds", kvs)
        kvs.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
        _report(f"{name},SGD", kvs)


def run_job(kind: str) -> None:
    """Run a job to its end and print microseconds a call."""
    worker = [sys.executable, "-m", "benchmarks.call_overhead", kind]
    rows = local_job.run_arm(kind, worker)
    for wall, thread in zip(rows[::2], rows[1::2]):
        wall_us, thread_us = (statistics.median(row.seconds) / KEYS * 1e6 for row in (wall, thread))
        store, updater = wall.name.split(":")[0].split(",")
        print(
            f"{kind}, {store}, {updater}: {wall_us:.1f} us a call, "
            f"{thread_us:.1f} us of the calling thread's processor time",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        for each in local_job.ARMS:
            run_job(each)
