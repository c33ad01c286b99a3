"""A job whose link and processes suffer; run by slow_link.sh, in a network of its own.

``--down S`` takes the link away for so long and prints what the processes said.  ``--vanish``
does so for good, between our scheduler node and nodes of MXNet's own. ``--soak S`` harms
the job at random for so long: processes stop, the link goes down, or becomes slow; every sum is
checked by the workers, and the memory of every process here.  The seed is printed; ``--seed N``
repeats the order of the faults.  kills.py has kills besides.  By hand, for half an hour:

    cd tests/e2e/_support
    ./slow_link.sh 1gbit python link_faults.py --soak 1800 --patience 60s
"""

import argparse
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
from typing import Dict, List

from job import Job, Process

# Of a process after its first steps, more is a leak: the longest runs had 0.6 MiB, a short one 1.2.
MOST_GROWTH = 4 << 20
MANY_STEPS = 10_000_000


def link(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def rate(value: str) -> None:
    command = ["tc", "qdisc", "change", "dev", "lo", "root", "tbf", "rate", value]
    subprocess.run([*command, "burst", "64kb", "latency", "50ms"], check=True)


def start(job: Job, steps: int) -> None:
    for _ in range(2):
        job.start_worker("steps/faulty_worker.py", "native", str(steps), "0.005")
    for worker in job.workers:
        worker.wait_for_line("step 3 of")


def take_link_away(job: Job, seconds: float) -> None:
    start(job, 300)
    link("down")
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(worker.running() for worker in job.workers):
        time.sleep(0.1)
    link("up")
    for process in job.processes:
        process.wait()
    print(job.all_output())


def vanish(job: Job) -> None:
    """Take the link away from nodes that say nothing: MXNet's own, which wait for each other."""
    job.start_worker("stock/stock_idle.py")
    scheduler = job.processes[0]
    job.workers[0].wait_for_line("idle")
    link("down")
    scheduler.wait()
    link("up")
    print(scheduler.output())


def harm_once(job: Job, chance: random.Random) -> None:
    fault, seconds = chance.choice(["stop", "down", "slow"]), chance.uniform(0.05, 1.5)
    if fault == "stop":
        victim = chance.choice(job.processes)
        victim.signal(signal.SIGSTOP)
        time.sleep(seconds)
        victim.signal(signal.SIGCONT)
    elif fault == "down":
        link("down")
        time.sleep(seconds)
        link("up")
    else:
        rate("2mbit")
        time.sleep(seconds)
        rate("1gbit")


def steps_of(worker: Process) -> int:
    lines = [line for line in worker.output().splitlines() if line.startswith("step ")]
    return int(lines[-1].split()[1])


def last_words(job: Job) -> str:
    return "".join(f"--- {p.name}\n...{p.output()[-1000:]}\n" for p in job.processes)


def soak(job: Job, seconds: float, seed: int) -> None:
    chance = random.Random(seed)
    start(job, MANY_STEPS)
    before: Dict[str, int] = {}
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        harm_once(job, chance)
        count += 1
        for process in job.processes:
            assert process.running(), f"seed {seed}, fault {count}:\n{last_words(job)}"
        # Time to get over it: TCP waits twice as long after each loss, up to minutes.
        time.sleep(chance.uniform(0.2, 1.5))
        if not before:
            before = {process.name: process.kib("VmRSS") * 1024 for process in job.processes}
    steps = steps_of(job.workers[0])
    deadline = time.monotonic() + 60  # what was in the way of the last fault comes through
    while steps_of(job.workers[0]) < steps + 10:
        assert time.monotonic() < deadline, f"seed {seed}: it stands still\n{last_words(job)}"
        time.sleep(0.1)
    grown: List[str] = []
    for process in job.processes:
        growth = process.kib("VmRSS") * 1024 - before[process.name]
        print(f"{process.name}: memory {growth / 2**20:+.1f} MiB")
        if growth > MOST_GROWTH:
            grown.append(process.name)
    assert not grown, f"seed {seed}: the memory of {grown} has grown"
    print(f"{count} faults, {steps_of(job.workers[0])} steps, seed {seed}: all sums right")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--down", type=float, default=0)
    parser.add_argument("--vanish", action="store_true")
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--patience", default="60s")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    args = parser.parse_args()
    env = {
        "BYTESCHEDULER_HEARTBEAT_INTERVAL": "200ms",
        "BYTESCHEDULER_HEARTBEAT_TIMEOUT": args.patience,
        "BYTESCHEDULER_SHARED_MEMORY": "0",  # all of it shall go through the link
    }
    stock = {"workers": 1, "servers": 1, "stock_servers": 1} if args.vanish else {}
    with tempfile.TemporaryDirectory() as folder, Job(
        pathlib.Path(folder), **{"servers": 2, **stock}, env=env
    ) as job:
        if args.vanish:
            vanish(job)
        elif args.soak:
            soak(job, args.soak, args.seed)
        else:
            take_link_away(job, args.down)


if __name__ == "__main__":
    main()
