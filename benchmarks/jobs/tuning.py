"""Let a job tune itself over rate-limited hosts, change the links in the middle, and compare.

A model's layer profile is replayed as by `jobs/replay.py`, by a job with BYTESCHEDULER_TUNING=on
and nothing remembered, which begins as a user's does: with partitions that suit the link. After
`--tuned-steps` steps every link gets the rate `--then`, and the job goes on for as many. A grid of
fixed points is swept before, and once more at the second rate, by jobs of their own. The sums of
the last step are checked, and of every twentieth of the job that tunes itself. Needs root (network
namespaces), iproute2, mxnet and bayesian-optimization.

    python -m benchmarks.jobs.tuning --rate 1gbit --then 500mbit --out tuning.json
    python -m benchmarks.jobs.tuning --start 2048,8192    # from a point far away

What is known is written after the first sweep, after the job, and at the end.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import tempfile
import threading
from typing import Any, Dict, List, NamedTuple, Optional

from benchmarks.jobs import sweep
from benchmarks.jobs.replay import Replayed, cell_words, given_cell
from benchmarks.lab import lab_job, options
from benchmarks.lab.output import give, keep

# The steps whose median is a job's result.
LAST = 20
# Steps that do not count: at the start of the job, and after the change.
DROPPED, DROPPED_THEN = 3, 1
DEFAULT = sweep.Point(128, 512)
_CHANGE = "the-links-change"


def work(args: argparse.Namespace) -> None:
    """Run one worker; print the seconds of all its steps."""
    replayed = Replayed(given_cell(args), args)
    seconds = []
    for step in range(2 * args.tuned_steps):
        if step == args.tuned_steps and replayed.store.rank == 0:
            (pathlib.Path(args.folder) / _CHANGE).touch()
        seconds.append(replayed.step(step))
        if step % LAST == LAST - 1:  # which the engine takes for a pause
            replayed.check(step)
    replayed.check(2 * args.tuned_steps - 1)
    lab_job.report(seconds)


def remembered(cache: pathlib.Path) -> Optional[List[int]]:
    """Return partition and credit in KiB that the one job with this file has found, if any."""
    if not cache.exists():
        return None
    (found,) = json.loads(cache.read_text())["results"].values()
    return [found["partition"] // sweep.KIB, found["credit"] // sweep.KIB]


def start_env(start: Optional[sweep.Point]) -> Dict[str, str]:
    """Return the settings of a job that begins at a point, or as one without any."""
    if start is None:
        return {}
    return {
        "BYTESCHEDULER_PARTITION": f"{start.partition}KiB",
        "BYTESCHEDULER_CREDIT": f"{start.credit}KiB",
    }


class Ran(NamedTuple):
    """The result of a job."""

    steps: List[List[float]]  # seconds, for each worker
    found: List[Optional[List[int]]]  # from `remembered`, before the links changed and at the end


def tuned(args: argparse.Namespace) -> Ran:
    """Run the job and change its links in the middle."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "BYTESCHEDULER_TUNING": "on",
            "BYTESCHEDULER_TUNING_CACHE": f"{folder}/tuning.json",
            "BYTESCHEDULER_LOG_LEVEL": "info",
            **start_env(args.start),
        }
        over = threading.Event()

        def change() -> List[Optional[List[int]]]:
            while not over.wait(0.05):
                if (pathlib.Path(folder) / _CHANGE).exists():
                    before = remembered(cache)
                    lab_job.change_rate(args.then, args.shape)
                    return [before]
            return []

        cache = pathlib.Path(env["BYTESCHEDULER_TUNING_CACHE"])
        worker = [sys.executable, "-m", "benchmarks.tuning", "--work", "--folder", folder]
        worker += [*cell_words(given_cell(args), args), "--tuned-steps", str(args.tuned_steps)]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            changed = pool.submit(change)
            try:
                steps = lab_job.run("ours", worker, env, args.timeout, shape=args.shape)
            finally:
                over.set()
            if not changed.result():
                raise SystemExit("the links were not changed")
        return Ran(steps, [*changed.result(), remembered(cache)])


def point(text: str) -> sweep.Point:
    """Return the point that two numbers stand for."""
    try:
        partition, credit = (int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text}: want KiB of a partition and of the credit, such as 128,512"
        ) from None
    return sweep.Point(partition, credit)


def came_within(steps: List[float], seconds: float) -> Optional[int]:
    """Return how many steps it took until medians of `LAST` in a row were at most `seconds`.

    That is the end of the last `LAST` steps whose median was longer: so that the count leaves out
    none of the long ones, it may have as many as half of `LAST` short ones. 0: none was longer.
    None: the last were, or there are fewer steps than `LAST`.
    """
    medians = [statistics.median(steps[i : i + LAST]) for i in range(len(steps) - LAST + 1)]
    too_long = [i for i, median in enumerate(medians) if median > seconds]
    if not medians or medians[-1] > seconds:
        return None
    return too_long[-1] + LAST if too_long else 0


def slowest(steps: List[float], first: int) -> float:
    """Return the seconds of the slowest of steps numbered from `first` on.

    Not of those right behind a check, which waits for all sums: nothing overlaps in them.
    """
    return max(second for number, second in enumerate(steps, first) if number % LAST)


def summarize(
    steps: List[float], dropped: int, points: List[Dict[str, Any]], first: int = 0
) -> Dict[str, Any]:
    """Compare what a job came to with the fastest point of a grid and with the default.

    `first` is the number of the first of these steps in its job; the first `dropped` of them are of
    no steady job: they count only as steps that were needed.
    """
    default = next(
        row["step_s"] for row in points if (row["partition_kib"], row["credit_kib"]) == DEFAULT
    )
    steps = steps[dropped:]
    came_to = statistics.median(steps[-LAST:])
    came = came_within(steps, 1.03 * points[0]["step_s"])
    return {
        "step_s": came_to,
        "best_of_grid_s": points[0]["step_s"],
        "default_s": default,
        "of_best": came_to / points[0]["step_s"],
        "steps_to_within_3_percent": dropped + came if came else came,
        "slowest_step_of_default": slowest(steps, first + dropped) / default,
        "first_steps_s": statistics.median(steps[:5]),
        "points": points,
    }


def main() -> None:
    """Sweep, tune, change the links, and print all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    sweep.add_options(parser)
    parser.add_argument(
        "--then", type=lab_job.rate, default="500mbit", help="the links' second rate"
    )
    parser.add_argument(
        "--start",
        type=point,
        help="where the job begins, partition,credit in KiB; default: neither is set",
    )
    parser.add_argument(
        "--tuned-steps",
        type=options.count(DROPPED + LAST),
        default=120,
        help="at each of both rates",
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.arm, args.by_name = "ours", False
    if args.work:
        work(args)
        return
    options.require_tuner(parser)
    args.shape = lab_job.shape_of(parser, args)
    if DEFAULT not in sweep.grid(args.partitions, args.credits):
        raise SystemExit(
            f"--partitions, --credits: want {DEFAULT.partition} and {DEFAULT.credit} too"
        )
    result: Dict[str, Any] = {
        "model": args.model,
        "scale": args.scale,
        "compute_s": args.compute,
        "start_kib": args.start,
        "shape": args.shape._asdict(),
    }
    with lab_job.lab(args.rate, args.shape):
        before = sweep.swept(args)
        keep({**result, "swept_before": before}, args)
        ran = tuned(args)
        steps = [statistics.mean(both) for both in zip(*ran.steps)]
        first, then = steps[: args.tuned_steps], steps[args.tuned_steps :]
        result["rates"] = {args.rate: summarize(first, DROPPED, before)}
        result["found_kib"] = dict(zip((args.rate, args.then), ran.found))
        result["steps_s"] = steps
        keep(result, args)
        after = sweep.swept(args)
    result["rates"][args.then] = summarize(then, DROPPED_THEN, after, args.tuned_steps)
    give(result, args)


if __name__ == "__main__":
    main()
