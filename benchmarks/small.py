"""Small tensors: a blocking push-pull of 1 KB, and bursts of many, against MXNet.

One worker, one server, loopback. Arms: ``stock`` (MXNet ``dist_sync``), ``ours``
(``ScheduledKVS``), ``kvstore`` (the same on stock servers), ``native`` (our engine without MXNet
and Python: the program ``wire_benchmark`` of a build with ``-DBS_BUILD_BENCHMARKS=ON``). Of a burst
through MXNet the time in which the Python thread makes the calls is told apart.

    python -m benchmarks.small --native build/benchmarks/wire_benchmark --out small.json
"""

import argparse
import statistics
import sys
import time
from typing import Dict, List

from . import local_job
from .output import add_out_option, give

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
    grads = [mx.nd.ones((SIZE_BYTES // 4,)) for _ in range(keys + 1)]
    outs = [mx.nd.zeros((SIZE_BYTES // 4,)) for _ in range(keys + 1)]
    store.init(list(range(keys + 1)), outs)
    mx.nd.waitall()
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
        for _ in range(WARM_UPS):
            burst(first, last)
        calls.clear()
        local_job.worker_waits("BEGIN", name)
        seconds = [burst(first, last) for _ in range(repeats)]
        local_job.worker_waits("END", name, seconds)
        if name == "burst":
            local_job.worker_waits("BEGIN", "calls")
            local_job.worker_waits("END", "calls", calls)
    assert all(out[0].asscalar() == 1 for out in outs), "a sum is wrong"


def run_arm(arm: str, args: argparse.Namespace) -> List[local_job.Measured]:
    """Run one job."""
    if arm == "native":
        worker = [args.native, "small", str(SIZE_BYTES), str(args.keys), str(args.rounds)]
        return local_job.run([args.native, "node"], worker, {})
    worker = [sys.executable, "-m", "benchmarks.small", "--worker", arm]
    worker += ["--keys", str(args.keys), "--rounds", str(args.rounds)]
    return local_job.run_arm(arm, worker)


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", default="stock,ours,native")
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    add_out_option(parser)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        mxnet_worker(args.worker, args.keys, args.rounds)
        return
    figures: Dict[str, Dict[str, List[float]]] = {arm: {} for arm in args.arms.split(",")}
    for _ in range(args.repeats):
        for arm, of_arm in figures.items():
            for row in run_arm(arm, args):
                keys = 1 if row.name == "blocking" else args.keys
                name = f"{row.name}_us" if row.name == "blocking" else f"{row.name}_us_per_key"
                micros = statistics.median(row.seconds) / keys * 1e6
                of_arm.setdefault(name, []).append(round(micros, 2))
                if row.name != "calls":
                    cpu = row.cpu_s / len(row.seconds) / keys * 1e6
                    of_arm.setdefault(f"{name}_cpu", []).append(round(cpu, 2))
            print(arm, {k: v[-1] for k, v in of_arm.items()}, file=sys.stderr, flush=True)
    medians = {
        arm: {name: statistics.median(values) for name, values in of_arm.items()}
        for arm, of_arm in figures.items()
    }
    give({"medians": medians, "all": figures}, args)


if __name__ == "__main__":
    main()
