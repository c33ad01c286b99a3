"""Sweep partition and credit in one running job over rate-limited hosts, without a restart.

A model's layer profile is replayed as by `jobs/replay.py`. Before each point of the grid rank 0
changes partition and credit (`ScheduledKVS.retune`); the steps right behind are told apart, as they
show what a change costs. The sums of each point's last step are checked. Needs root (network
namespaces), iproute2 and mxnet.

    python -m benchmarks.jobs.sweep --partitions 64,128,512 --credits 256,512,1024 --out sweep.json
"""

import argparse
import random
import statistics
import sys
from typing import Any, Dict, List, NamedTuple

from benchmarks.jobs.replay import (
    Replayed,
    add_cell_options,
    add_device_option,
    cell_words,
    given_cell,
)
from benchmarks.lab import lab_job, options
from benchmarks.lab.output import add_out_option, give

KIB = 1024
# Steps of a change: the first decides it, the next has new partitions, the last may wait for both.
CHANGING = 3


class Point(NamedTuple):
    """The settings of a job, in KiB."""

    partition: int
    credit: int


def grid(partitions: List[int], credits: List[int]) -> List[Point]:
    """Return every pair in which a partition fits into the credit."""
    return [Point(p, c) for p in partitions for c in credits if p <= c]


def order_of(points: List[Point], repeats: int) -> List[Point]:
    """Return each point so often, in an order that is random and always the same."""
    chance = random.Random(1)
    return [point for _ in range(repeats) for point in chance.sample(points, len(points))]


def work(args: argparse.Namespace) -> None:
    """Run one worker; print for each point in turn the steps behind the change, then the others."""
    replayed = Replayed(given_cell(args), args)
    points = order_of(grid(args.partitions, args.credits), args.repeats)
    results = []
    done = 0

    def steps(count: int) -> List[float]:
        nonlocal done
        seconds = [replayed.step(done + i) for i in range(count)]
        done += count
        return seconds

    steps(CHANGING)
    for point in points:
        if replayed.store.rank == 0:
            replayed.store.retune(point.partition * KIB, point.credit * KIB)
        results.append([steps(CHANGING), steps(args.steps)])
        replayed.check(done - 1)
    lab_job.report(results)


def summarize(
    points: List[Point], workers: "List[List[List[List[float]]]]"
) -> List[Dict[str, Any]]:
    """Return a row for each point: medians over its steps on all workers, the fastest first."""
    changing: Dict[Point, List[float]] = {}
    steady: Dict[Point, List[float]] = {}
    for results in workers:
        for point, (behind, others) in zip(points, results):
            changing.setdefault(point, []).extend(behind)
            steady.setdefault(point, []).extend(others)
    rows = [
        {
            "partition_kib": point.partition,
            "credit_kib": point.credit,
            "step_s": statistics.median(seconds),
            "worst_changing_step_s": max(changing[point]),
            "steps": len(seconds),
        }
        for point, seconds in steady.items()
    ]
    return sorted(rows, key=lambda row: row["step_s"])


def swept(args: argparse.Namespace) -> List[Dict[str, Any]]:
    """Sweep the grid in one job in the lab that is there; return what `summarize` does."""
    points = order_of(grid(args.partitions, args.credits), args.repeats)
    if not points:
        raise SystemExit("--partitions, --credits: no partition is as small as a credit")
    worker = [sys.executable, "-m", "benchmarks.sweep", "--work"]
    worker += cell_words(given_cell(args), args)
    worker += ["--steps", str(args.steps), "--repeats", str(args.repeats)]
    for name in ("partitions", "credits"):
        worker += [f"--{name}", ",".join(map(str, getattr(args, name)))]
    return summarize(points, lab_job.run("ours", worker, {}, args.timeout, shape=args.shape))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let the caller say what is swept."""
    add_cell_options(parser)
    add_device_option(parser)
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of each link")
    lab_job.add_shape_options(parser)
    parser.add_argument(
        "--partitions", type=options.counts, default=[64, 128, 256, 512], help="in KiB"
    )
    parser.add_argument("--credits", type=options.counts, default=[256, 512, 1024], help="in KiB")
    parser.add_argument(
        "--steps", type=options.count(), default=5, help="measured at each point, each time"
    )
    parser.add_argument(
        "--repeats", type=options.count(), default=3, help="how often each point is set"
    )
    parser.add_argument("--timeout", type=float, default=1200)
    add_out_option(parser)


def main() -> None:
    """Sweep the grid in one job and print its points as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.arm, args.by_name = "ours", False
    if args.work:
        work(args)
        return
    args.shape = lab_job.shape_of(parser, args)
    with lab_job.lab(args.rate, args.shape):
        rows = swept(args)
    result = {
        "model": args.model,
        "scale": args.scale,
        "compute_s": args.compute,
        "rate": args.rate,
        "shape": args.shape._asdict(),
        "points": rows,
    }
    give(result, args)


if __name__ == "__main__":
    main()
