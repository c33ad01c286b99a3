"""From 2 to 1,024 workers on simulated time, all of them real worker code (src/predict).

It reports for each number of workers, each in a process of its own:

- the time of a step beside the ideal, and the number of messages that wait;
- the processor time of a partition, for worker, server and simulator together;
- the memory of a key, for a worker with its share of the server and of the simulator.

The links' rates make the servers the limit, and compute takes as long as they need. Some numbers of
workers also run with smaller partitions and less credit.

Then real processes run on this host, the engine without MXNet: a job pushes and pulls the model's
tensors, all at once. It reports the time of such a step, and the memory of a worker and a server.
Every element of every sum is checked, outside the time.

With `--peers` one real node has peers, as many as each number says, on another host of the lab
(benchmarks/lab): a worker with servers, then a server with workers. The node pushes or gets the
same bytes in a step whatever their number, as in a job of as many workers as servers. It reports
the processor time of a step and the memory of that node.

    python -m benchmarks.jobs.scale --out scale.json
    python -m benchmarks.jobs.scale --peers 2,128 --workers "" --real "" --out peers.json

The results so far are written after every number of workers.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Dict, List, Tuple

from benchmarks.jobs.footprint import memory_of as memory_of_process
from benchmarks.lab import lab_job, local_job, options
from benchmarks.lab.output import add_out_option, give, keep
from bytescheduler._advise import models
from bytescheduler._advise.advice import Cluster

MODEL, SCALE = "resnet50", 16
BITS_PER_S, LATENCY_S = 1e9, 50e-6
PARTITION, CREDIT = 128 << 10, 512 << 10  # the start of every job
STEPS, WARM_UPS = 2, 2
FEW_KEYS, MANY_KEYS = 50, 250
REAL_STEPS = 12
REAL_SERVERS = 2
KEY_BYTES, NODE_KEYS = 32 << 10, 768  # one node with many peers


def cluster(
    workers: int, servers: int, partition: int = PARTITION, credit: int = CREDIT
) -> Cluster:
    """Return hosts of which every worker is simulated."""
    return Cluster(workers, servers, BITS_PER_S, LATENCY_S, partition, credit, workers)


def step_of(
    workers: int, servers: int, partition: int = PARTITION, credit: int = CREDIT
) -> Dict[str, Any]:
    """Return what a step takes."""
    job = cluster(workers, servers, partition, credit)
    size = sum(step.size_bytes for step in models.scaled(MODEL, SCALE, 1.0))
    steps = models.scaled(MODEL, SCALE, size / job.model_bytes_per_s)
    begin = time.process_time()
    found = job.predict(steps, "ours", STEPS)
    processor = time.process_time() - begin
    started = workers * found.partitions * (STEPS + WARM_UPS + 1)  # and the initial values
    return {
        "step_s": found.step_s,
        "ideal_s": models.ideal_s(steps, job.model_bytes_per_s),
        "worker_waiting": found.most_waiting,
        "server_waiting": found.server_waiting,
        "partitions": found.partitions,
        "processor_us_per_partition": 1e6 * processor / started,
    }


def memory_of(workers: int, servers: int, keys: int) -> int:
    """Return the most bytes that this process had of its own, with `keys` keys of 4 bytes."""
    steps = [models.Step(str(key), 4, 1e-6, 1e-6) for key in range(keys)]
    cluster(workers, servers).predict(steps, "ours", 1)
    # Not ru_maxrss, which begins with that of the process that started this one.
    return memory_of_process(os.getpid())["most"]


def alone(*words: object) -> str:
    """Return what a part of this prints in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def real_worker() -> None:
    """Push and pull the model again and again; runs in a worker."""
    from benchmarks.jobs.native import Tensors

    sizes = [step.size_bytes for step in models.scaled(MODEL, SCALE, 1.0)]
    tensors = Tensors(sizes)
    tensors.declare(0, len(sizes))
    seconds = []
    for step in range(WARM_UPS + REAL_STEPS):
        tensors.worker.barrier()
        begin = time.perf_counter()
        tensors.sums(0, len(sizes))
        if step >= WARM_UPS:
            seconds.append(time.perf_counter() - begin)
        tensors.check(0, len(sizes))
    local_job.worker_waits("END", "steps", seconds)
    tensors.close()


def real_job(workers: int) -> Dict[str, Any]:
    """Return what a step takes with real processes on this host, and what they have."""
    command = [sys.executable, "-m", "benchmarks.scale", "--real-worker"]
    node, env = local_job.NODES["ours"], local_job.ARMS["ours"][1]
    with local_job.job(node, command, env, workers, REAL_SERVERS) as job:
        times = [[float(word) for word in words[2:]] for words in job.heard("END steps")]
        memory = {
            who: [memory_of_process(process.pid) for process in of]
            for who, of in (("worker", job.workers), ("server", job.servers))
        }
        job.go_on()
        job.ended()
    row: Dict[str, Any] = {"workers": workers, "servers": REAL_SERVERS}
    row["step_s"] = statistics.median(max(of) for of in zip(*times))  # the slowest worker's
    for who, of in memory.items():
        row[f"{who}_mbytes"] = round(max(one["own"] for one in of) / 1e6, 1)
        row[f"{who}_shared_mbytes"] = round(max(one["shared"] for one in of) / 1e6, 1)
    return row


def peers_worker(keys: int) -> None:
    """Push and pull small keys, between one BEGIN and one END; runs in a worker."""
    from benchmarks.jobs.native import Tensors

    tensors = Tensors([KEY_BYTES] * keys)
    tensors.declare(0, keys)
    for step in range(WARM_UPS + REAL_STEPS):
        if step == WARM_UPS:
            tensors.worker.barrier()
            local_job.worker_waits("BEGIN", "steps")
        tensors.sums(0, keys)
    local_job.worker_waits("END", "steps")
    tensors.check(0, keys)
    tensors.close()


def cpu_ms(pid: int) -> Tuple[float, float]:
    """Return the user and the system time of a process."""
    after_name = pathlib.Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    tick_ms = 1e3 / os.sysconf("SC_CLK_TCK")
    return int(after_name[11]) * tick_ms, int(after_name[12]) * tick_ms


def node_with(kind: str, peers: int) -> Dict[str, Any]:
    """Return what a step takes a worker with `peers` servers, or a server with such workers."""
    workers, servers = (1, peers) if kind == "worker" else (peers, 1)
    keys = NODE_KEYS // workers
    command = [sys.executable, "-m", "benchmarks.scale", "--peers-worker", str(keys)]
    node, env = local_job.NODES["ours"], local_job.ARMS["ours"][1]
    near, far = lab_job.USUAL.worker_hosts[0], lab_job.USUAL.server_hosts[0]
    places = (lab_job.place(near), lab_job.place(far))
    with local_job.job(node, command, env, workers, servers, places) as job:
        watched = (job.workers if kind == "worker" else job.servers)[0].pid
        job.heard("BEGIN steps")
        before = cpu_ms(watched)
        job.go_on()
        job.heard("END steps")
        user, system = (now - then for now, then in zip(cpu_ms(watched), before))
        memory = memory_of_process(watched)
        job.go_on()
        job.ended()
    return {
        "node": kind,
        "peers": peers,
        "mbytes_per_step": round(keys * workers * KEY_BYTES / 1e6, 1),
        "user_ms_per_step": round(user / REAL_STEPS, 2),
        "system_ms_per_step": round(system / REAL_STEPS, 2),
        "memory_mbytes": round(memory["own"] / 1e6, 1),
    }


def simulated(workers: int, args: argparse.Namespace) -> Dict[str, Any]:
    """Return a row of the table, each figure from a process of its own."""
    begin = time.perf_counter()
    servers = min(workers, args.most_servers)
    row: Dict[str, Any] = {"workers": workers, "servers": servers}
    row.update(json.loads(alone("--step", workers, servers, PARTITION, CREDIT)))
    few, many = (int(alone("--memory", workers, servers, n)) for n in (FEW_KEYS, MANY_KEYS))
    row["bytes_per_key"] = (many - few) / (MANY_KEYS - FEW_KEYS) / workers
    if args.least_small <= workers <= args.most_small:
        row["smaller"] = []
        for partition, credit in args.smaller:
            found = json.loads(alone("--step", workers, servers, partition, credit))
            row["smaller"].append({"partition": partition, "credit": credit, **found})
    row["took_s"] = round(time.perf_counter() - begin, 1)
    return row


def sizes(text: str) -> List[Tuple[int, int]]:
    """Return what a list such as "64:128" says, which may be empty, in bytes, for argparse."""
    found = []
    for piece in text.split(",") if text else []:
        partition, colon, credit = piece.partition(":")
        if not colon:
            raise argparse.ArgumentTypeError(
                f"{piece!r}: want KiB of a partition and of the credit, such as 64:128"
            )
        found.append((options.count()(partition) << 10, options.count()(credit) << 10))
    return found


def main() -> None:
    """Run every number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count = options.count()
    parser.add_argument(
        "--workers", type=options.counts_if_any, default="2,8,32,128,512,1024", help="simulated"
    )
    parser.add_argument("--most-servers", type=count, default=8)
    parser.add_argument(
        "--smaller", type=sizes, default="64:128,32:64,16:32", help="KiB, partition:credit"
    )
    parser.add_argument("--least-small", type=count, default=8, help="workers to try them with")
    parser.add_argument("--most-small", type=count, default=128)
    parser.add_argument(
        "--real", type=options.counts_if_any, default="2,4,8,16", help="workers, as real processes"
    )
    parser.add_argument(
        "--peers", type=options.counts_if_any, default="", help="of one node, on another host"
    )
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of these hosts")
    parser.add_argument("--step", type=int, nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--real-worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--peers-worker", type=int, help=argparse.SUPPRESS)
    add_out_option(parser)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(step_of(*args.step)))
        return
    if args.memory:
        print(memory_of(*args.memory))
        return
    if args.real_worker:
        real_worker()
        return
    if args.peers_worker:
        peers_worker(args.peers_worker)
        return
    result: Dict[str, Any] = {"model": MODEL, "scale": SCALE, "rows": [], "real": [], "peers": []}

    def add(kind: str, row: Dict[str, Any]) -> None:
        print(row, file=sys.stderr, flush=True)
        result[kind].append(row)
        keep(result, args)

    if args.peers:
        with lab_job.lab(args.rate):
            for kind in ("worker", "server"):
                for peers in args.peers:
                    add("peers", node_with(kind, peers))
    for workers in args.real:
        add("real", real_job(workers))
    for workers in args.workers:
        add("rows", simulated(workers, args))
    give(result, args)


if __name__ == "__main__":
    main()
