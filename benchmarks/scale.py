"""From 2 to 1,024 workers on simulated time, all of them real worker code (src/predict).

For each number of workers: the time of a step beside the ideal, how many messages wait, what a
partition costs of processor time (worker, server and simulator together), and what a key costs of
memory (of a worker, with its share of the server and of the simulator). Each in a process of its
own. Rates are so that the servers are what limits, and compute takes as long as they need.

    python -m benchmarks.scale --out scale.json
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any, Dict

from bytescheduler._advise import models
from bytescheduler._advise.advice import Cluster

from .output import add_out_option, give

MODEL, SCALE = "resnet50", 16
BITS_PER_S, LATENCY_S = 1e9, 50e-6
PARTITION, CREDIT = 128 << 10, 512 << 10
STEPS, WARM_UPS = 2, 2
FEW_KEYS, MANY_KEYS = 50, 250


def cluster(workers: int, servers: int) -> Cluster:
    """Return hosts of which every worker is simulated."""
    return Cluster(workers, servers, BITS_PER_S, LATENCY_S, PARTITION, CREDIT, workers)


def step_of(workers: int, servers: int) -> Dict[str, Any]:
    """Return what a step takes."""
    job = cluster(workers, servers)
    size = sum(step.size_bytes for step in models.scaled(MODEL, SCALE, 1.0))
    steps = models.scaled(MODEL, SCALE, size / job.share_bytes_per_s)
    begin = time.process_time()
    found = job.predict(steps, "ours", STEPS)
    processor = time.process_time() - begin
    started = workers * found.partitions * (STEPS + WARM_UPS + 1)  # and the initial values
    return {
        "step_s": found.step_s,
        "ideal_s": models.ideal_s(steps, job.share_bytes_per_s),
        "worker_waiting": found.most_waiting,
        "server_waiting": found.server_waiting,
        "partitions": found.partitions,
        "processor_us_per_partition": 1e6 * processor / started,
    }


def memory_of(workers: int, servers: int, keys: int) -> int:
    """Return the most bytes that this process had, with so many keys of 4 bytes."""
    steps = [models.Step(str(key), 4, 1e-6, 1e-6) for key in range(keys)]
    cluster(workers, servers).predict(steps, "ours", 1)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def alone(*words: object) -> str:
    """Return what a part of this prints in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Run every number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="2,8,32,128,512,1024")
    parser.add_argument("--most-servers", type=int, default=8)
    parser.add_argument("--step", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, nargs=3, help=argparse.SUPPRESS)
    add_out_option(parser)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(step_of(*args.step)))
        return
    if args.memory:
        print(memory_of(*args.memory))
        return
    rows = []
    for workers in map(int, args.workers.split(",")):
        servers = min(workers, args.most_servers)
        row: Dict[str, Any] = {"workers": workers, "servers": servers}
        row.update(json.loads(alone("--step", workers, servers)))
        few, many = (int(alone("--memory", workers, servers, n)) for n in (FEW_KEYS, MANY_KEYS))
        row["bytes_per_key"] = (many - few) / (MANY_KEYS - FEW_KEYS) / workers
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    give({"model": MODEL, "scale": SCALE, "rows": rows}, args)


if __name__ == "__main__":
    main()
