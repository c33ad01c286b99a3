"""Small tensors: a blocking push-pull of 1 KB, and bursts of many, against MXNet.

One worker, one server, loopback. Arms: ``stock`` (MXNet ``dist_sync``), ``ours``
(``ScheduledKVS``), ``ours-sockets`` (the same without shared memory), ``kvstore`` (the same on
stock servers), ``native`` (our engine without MXNet and Python: the program ``wire_benchmark`` of a
build with ``-DBS_BUILD_BENCHMARKS=ON``). Of a burst through MXNet the time in which the Python
thread makes the calls is told apart. Gradients change from round to round, and all sums are
checked; what that takes is not counted.

    python -m benchmarks.jobs.small --native build/benchmarks/wire_benchmark --out small.json
"""

import argparse
import statistics
import sys
import time
from typing import Dict, List

from benchmarks.jobs import sums
from benchmarks.lab import arms, local_job, machine, options
from benchmarks.lab.output import add_out_option

SIZE_BYTES = 1024
BLOCKING_PER_ROUND = 100
WARM_UPS = 2


def mxnet_worker(kind: str, keys: int, rounds: int) -> None:
    """Time push-pulls through a KVStore; runs in the worker."""
    import mxnet as mx

    store = mx.kv.create("dist_sync")
    if kind != "stock":
        from bytescheduler.mxnet import ScheduledKVS

        store = ScheduledKVS(store)
    grads = [mx.nd.zeros((SIZE_BYTES // 4,)) for _ in range(keys + 1)]
    outs = [mx.nd.zeros((SIZE_BYTES // 4,)) for _ in range(keys + 1)]
    store.init(list(range(keys + 1)), outs)
    mx.nd.waitall()
    views = [(sums.view_of(grad), sums.view_of(out)) for grad, out in zip(grads, outs)]
    checked = [sums.Sums(key, *both) for key, both in enumerate(views)]
    calls: List[float] = []

    def burst(first: int, last: int) -> float:
        begin = time.perf_counter()
        for key in range(first, last):
            store.pushpull(key, grads[key], out=outs[key], priority=-key)
        calls.append(time.perf_counter() - begin)
        for key in range(first, last):
            outs[key].wait_to_read()
        return time.perf_counter() - begin

    plans = (("blocking", keys, keys + 1, BLOCKING_PER_ROUND * rounds), ("burst", 0, keys, rounds))
    for name, first, last, repeats in plans:
        mine = checked[first:last]

        def push_pull(first: int = first, last: int = last) -> float:
            return burst(first, last)

        sums.rounds(mine, push_pull, WARM_UPS)
        calls.clear()
        local_job.worker_waits("BEGIN", name)
        seconds, aside_s = sums.rounds(mine, push_pull, repeats)
        local_job.worker_sets_aside(aside_s)
        local_job.worker_waits("END", name, seconds)
        if name == "burst":
            local_job.worker_waits("BEGIN", "calls")
            local_job.worker_waits("END", "calls", calls)
        sums.last_round(mine, push_pull)


def measure(arm: str, args: argparse.Namespace) -> List[local_job.Measured]:
    """Run one job."""
    if arm == "native":
        worker = [args.native, "small", str(SIZE_BYTES), str(args.keys), str(args.rounds)]
        return local_job.run([args.native, "node"], worker, {}, timeout_s=args.timeout)
    worker = [sys.executable, "-m", "benchmarks.small", "--worker", arm]
    worker += ["--keys", str(args.keys), "--rounds", str(args.rounds)]
    return local_job.run_arm(arm, worker, timeout_s=args.timeout)


def figures_of(rows: List[local_job.Measured], keys: int) -> Dict[str, float]:
    """Return what a run of an arm comes to, in microseconds, with `keys` in a burst."""
    figures = {}
    for row in rows:
        count = 1 if row.name == "blocking" else keys
        name = f"{row.name}_us" if row.name == "blocking" else f"{row.name}_us_per_key"
        figures[name] = round(statistics.median(row.seconds) / count * 1e6, 2)
        if row.name != "calls":
            figures[f"{name}_cpu"] = round(row.cpu_s / len(row.seconds) / count * 1e6, 2)
    return figures


def summary(runs: List[Dict[str, float]]) -> Dict[str, float]:
    """Return an arm's medians."""
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arms.add_arms_option(parser, (*local_job.ARMS, "native"), "stock,kvstore,ours,native")
    parser.add_argument("--keys", type=options.count(), default=2000)
    parser.add_argument("--rounds", type=options.count(), default=10)
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an arm's run")
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", choices=sorted(local_job.ARMS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        mxnet_worker(args.worker, args.keys, args.rounds)
        return
    arms.alternate(args, lambda arm: figures_of(measure(arm, args), args.keys), summary)


if __name__ == "__main__":
    main()
