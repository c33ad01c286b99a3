"""The cost of a call to the Python thread: a push-pull of 1 KB, 1,000 keys, stock stores and ours.

It starts a job of one worker and one server for each kind of store on this host (``kvstore``: ours
on stock servers), in turn and several times.  A job reports microseconds a call, the median of some
rounds over all keys: as time that passes, and as time of the processor on the calling thread, which
the other threads and processes of the job cannot lengthen.  Printed are medians over the jobs, with
the least and the most.  Only the call itself is measured; the worker waits for its result after the
round has been timed.

    python -m benchmarks.jobs.call_overhead --out call_overhead.json

Each store is measured without an updater, with one that adds the sum to the weights, and with SGD.
Where stock MXNet updates on its servers, as ``dist_sync`` does, its caller has nothing to do with
it; ``local`` updates on the caller's thread, as ours does.
"""

import argparse
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from benchmarks.lab import arms, local_job, machine, options
from benchmarks.lab.output import add_out_option

KEYS, FLOATS, ROUNDS = 1000, 256, 7


def _stores(kind: str) -> "Iterator[Tuple[str, Any]]":
    """Make the stores to measure, each when the one before has been."""
    import mxnet as mx

    from bytescheduler.mxnet import ScheduledKVS

    wrap: Callable[[Any], Any] = (lambda kvs: kvs) if kind == "stock" else ScheduledKVS
    yield "dist_sync", wrap(mx.kv.create("dist_sync"))
    if not kind.startswith("ours"):  # under bslaunch a local store is as any other
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


def run_job(kind: str, timeout_s: float) -> Dict[str, float]:
    """Run a job to its end and return microseconds a call, by store, updater and clock."""
    worker = [sys.executable, "-m", "benchmarks.call_overhead", "--worker", kind]
    rows = local_job.run_arm(kind, worker, timeout_s=timeout_s)
    return {row.name: statistics.median(row.seconds) / KEYS * 1e6 for row in rows}


def summary(runs: List[Dict[str, float]]) -> Dict[str, Dict[str, float]]:
    """Return median, least and most of each row of a kind of store."""
    return {
        name: {
            "median_us": round(statistics.median(of), 2),
            "least_us": round(min(of), 2),
            "most_us": round(max(of), 2),
        }
        for name, of in ((name, [run[name] for run in runs]) for name in runs[0])
    }


def main() -> None:
    """Run all kinds of store in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arms.add_arms_option(parser, local_job.ARMS, "stock,ours,kvstore")
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", choices=sorted(local_job.ARMS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args.worker)
        return
    arms.alternate(args, lambda kind: run_job(kind, args.timeout), summary)


if __name__ == "__main__":
    main()
