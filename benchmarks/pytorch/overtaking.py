"""The wait for a small all-reduce behind a large one: torch.distributed over Gloo and over ours.

Workers on rate-limited hosts begin an all-reduce of `--large` bytes.  While it is under way they
make several of `--small` bytes, one after another, and wait for each.  Those behind which the large
one had ended are not counted.  Before that they make as many with nothing else on the links.  All
sums are checked.  Needs root (network namespaces) and iproute2.

    python -m benchmarks.pytorch.overtaking --out overtaking.json

Printed are, for each arm, milliseconds of a small one, idle and behind the large one: medians over
the runs, of the median and of the 99th percentile; and the seconds of a large one.
"""

import argparse
import statistics
import sys
import time
from typing import Any, Dict, List, Tuple

from benchmarks.jobs.urgent import medians, quantiles
from benchmarks.lab import arms as lab_arms
from benchmarks.lab import lab_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.pytorch import arms
from bytescheduler._advise.shape import Shape

ARMS = ("ddp", "ddp-backend")  # both by their backend alone
PAUSE_S = 0.02  # between small ones
WARM_UP = 2


def _seconds(tensor: Any, sums: int, size: int) -> float:  # noqa: ANN401 - torch comes late
    """Make a blocking sum; return its seconds."""
    import torch.distributed as dist

    tensor.fill_(sums)
    begin = time.perf_counter()
    dist.all_reduce(tensor)
    seconds = time.perf_counter() - begin
    if float(tensor[0]) != sums * size or float(tensor[-1]) != sums * size:
        raise SystemExit(f"a sum of {tensor.numel()} numbers is wrong: want {sums * size}")
    return seconds


def _turn(small: Any, large: Any, smalls: int) -> "Tuple[List[float], float]":  # noqa: ANN401
    """Return the seconds of small sums behind a large one, and those of the large one."""
    import torch.distributed as dist

    size = dist.get_world_size()
    behind: List[float] = []
    large.fill_(1.0)
    dist.barrier()
    begin = time.perf_counter()
    work = dist.all_reduce(large, async_op=True)
    for number in range(smalls):
        time.sleep(PAUSE_S)
        is_behind = not work.is_completed()
        seconds = _seconds(small, number + 1, size)
        if is_behind:
            behind.append(seconds)
    work.wait()
    took = time.perf_counter() - begin
    if float(large[0]) != size or float(large[-1]) != size:
        raise SystemExit("a large sum is wrong")
    return behind, took


def measure(args: argparse.Namespace) -> None:
    """Run one worker and report its times."""
    import torch
    import torch.distributed as dist

    from benchmarks.pytorch import ways

    torch.set_num_threads(1)
    small, large = torch.zeros(args.small // 4), torch.zeros(args.large // 4)
    ways.join(arms.ARMS[args.arm])
    idle: List[float] = []
    for number in range(args.turns * args.smalls):
        time.sleep(PAUSE_S)
        idle.append(_seconds(small, number + 1, dist.get_world_size()))
    turns = [_turn(small, large, args.smalls) for _ in range(WARM_UP + args.turns)][WARM_UP:]
    lab_job.report(
        {
            "idle_s": idle[WARM_UP:],
            "behind_s": [seconds for behind, _ in turns for seconds in behind],
            "large_s": [took for _, took in turns],
        }
    )
    dist.destroy_process_group()


def of_run(workers: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return what the workers of a run have seen together.

    Raises
    ------
    SystemExit
        No small sum was behind a large one.
    """
    seen = {
        name: [seconds for worker in workers for seconds in worker[name]]
        for name in ("idle_s", "behind_s", "large_s")
    }
    if not seen["behind_s"]:
        raise SystemExit("each large sum ended before a small one began: want more of --large")
    return {
        "idle": quantiles(seen["idle_s"]),
        "behind": quantiles(seen["behind_s"]),
        "counted": len(seen["behind_s"]),
        "large_s": statistics.median(seen["large_s"]),
    }


def summary(runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return medians over runs."""
    found: Dict[str, Any] = medians(runs, ("idle", "behind"), 3)
    large_s = statistics.median(run["large_s"] for run in runs)
    return {**found, "large_s": round(large_s, 3), "counted": sum(run["counted"] for run in runs)}


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-w", "--workers", type=options.count(2), default=2, help="and hosts")
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of each link")
    parser.add_argument("--small", type=options.count(4), default=4 << 10, help="bytes")
    parser.add_argument("--large", type=options.count(4), default=64 << 20, help="bytes")
    parser.add_argument("--turns", type=options.count(), default=20, help="large sums of a run")
    parser.add_argument("--smalls", type=options.count(), default=10, help="in each turn")
    parser.add_argument("--repeats", type=options.count(), default=5)
    lab_arms.add_arms_option(parser, ARMS, ",".join(ARMS))
    parser.add_argument("--timeout", type=options.seconds, default=180, help="seconds of a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.arm:
        measure(args)
        return
    words = [f"--{name}={getattr(args, name)}" for name in ("small", "large", "turns", "smalls")]
    shape = Shape(args.workers, args.workers, args.workers)

    def run(arm: str) -> Dict[str, Any]:
        worker = [sys.executable, "-m", "benchmarks.pytorch.overtaking", "--arm", arm, *words]
        return of_run(arms.run(arm, worker, args.timeout, shape))

    about = {"rate": args.rate, "workers": args.workers, "small": args.small, "large": args.large}
    with lab_job.lab(args.rate, shape):
        lab_arms.alternate(args, run, summary, about)


if __name__ == "__main__":
    main()
