"""Small tensors in one message: steps like ResNet-50's with and without fusion.

Two workers and two servers on rate-limited hosts, our engine without MXNet, on replayed layers.
Frameworks give gradients back one at a time, or several in one moment (MXNet's hybridized blocks
run up to 15 operations as one): ``--groups`` says how many layers' gradients become ready together.
Needs root (network namespaces) and iproute2.

    python -m benchmarks.fusion --native build/benchmarks/wire_benchmark --out fusion.json

Reported for each rate, group and setting of BYTESCHEDULER_FUSION: messages that a worker sends in a
step, those that travelled inside another, microseconds of its processor time for a step, and the
time of a step (medians of runs that alternate). Every step checks its sums.
"""

import argparse
import functools
import statistics
import sys
from typing import Any, Dict, List, Optional

from bytescheduler._advise import models

from . import arms, lab_job, options
from .output import add_out_option, give, keep

SETTINGS = ("0", "16KiB")


def layers(args: argparse.Namespace, group: int) -> List[str]:
    """Return the layers as wire_benchmark takes them.

    The last of a group in backward's order, which is the first here, ends when all have.
    """
    steps = models.scaled(args.model, args.scale, args.compute)
    words = []
    for place, step in enumerate(steps):
        first = (len(steps) - 1 - place) % group == 0
        mates = steps[max(0, place - group + 1) : place + 1]
        backward_s = sum(mate.backward_s for mate in mates) if first else 0
        words.append(f"{step.size_bytes}:{step.forward_s * 1e6:.0f}:{backward_s * 1e6:.0f}:{place}")
    return words


def measure(args: argparse.Namespace, group: int, setting: str) -> Dict[str, float]:
    """Run one job."""
    worker = [args.native, "replay", str(args.iterations), *layers(args, group)]
    env = {"BYTESCHEDULER_FUSION": setting}
    ran: List[Any] = lab_job.run("native", worker, env, args.timeout, [args.native, "node"])
    return {
        "messages": statistics.mean(of["sent"] - of["fused"] for of in ran),
        "fused": statistics.mean(of["fused"] for of in ran),
        "cpu_us": statistics.mean(of["cpu_us"] for of in ran),
        "step_ms": statistics.median(s for of in ran for s in of["seconds"]) * 1e3,
    }


def row_of(runs: List[Optional[Dict[str, float]]]) -> Dict[str, Any]:
    """Return medians of the runs that did not hang, how many did, and all."""
    ended = [run for run in runs if run is not None]
    keys = ended[0] if ended else {}
    medians = {key: statistics.median(run[key] for run in ended) for key in keys}
    return {**medians, "hung": runs.count(None), "all": runs}


def compare(args: argparse.Namespace, about: Dict[str, Any], result: Dict[str, Any]) -> None:
    """Run all settings in turn, several times, in the lab; add a row for each to the result."""
    runs: Dict[str, List[Optional[Dict[str, float]]]] = {setting: [] for setting in SETTINGS}
    before = result["rows"]
    for _ in range(args.repeats):
        for setting, of in runs.items():
            run = functools.partial(measure, args, about["group"], setting)
            of.append(arms.attempt(f"fusion {setting}", run))
            rows = [{**about, "fusion": name, **row_of(of)} for name, of in runs.items()]
            result["rows"] = before + rows
            keep(result, args)
    for row in result["rows"][-len(SETTINGS) :]:
        told = {key: value for key, value in row.items() if key != "all"}
        print(told, file=sys.stderr, flush=True)


def main() -> None:
    """Run all settings in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(models.MODELS), default="resnet50")
    parser.add_argument("--scale", type=int, default=16, help="divide the parameters by this")
    parser.add_argument("--compute", type=float, default=0.05, help="seconds of compute a step")
    parser.add_argument("--iterations", type=int, default=32)
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--rates", type=lab_job.rates, default="10gbit,1gbit")
    parser.add_argument("--groups", type=options.counts, default="1,15,161")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    add_out_option(parser)
    args = parser.parse_args()
    result = {"model": args.model, "scale": args.scale, "compute_s": args.compute, "rows": []}
    for rate in args.rates:
        with lab_job.lab(rate):
            for group in args.groups:
                compare(args, {"rate": rate, "group": group}, result)
    give(result, args)


if __name__ == "__main__":
    main()
