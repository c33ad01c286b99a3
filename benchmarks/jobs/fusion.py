"""Small tensors in one message: steps of ResNet-50 with and without fusion.

Two workers and two servers on rate-limited hosts, our engine without MXNet. It replays the 161
tensors that a framework pushes; profiles of whole layers would have no small ones. They are each
convolution's weight, scale and shift (gamma, beta) of its normalization, and the last layer's
weight and bias. Frameworks give gradients back one at a time, or several in one moment: MXNet's
hybridized blocks run up to 15 operations as one. ``--groups`` is the number of tensors that become
ready together.
Jobs are set to the partition and credit that suit a link of the rate, so that all have the same.
Needs root (network namespaces) and iproute2.

    python -m benchmarks.jobs.fusion --native build/benchmarks/wire_benchmark --out fusion.json

It reports for each rate, group and setting of BYTESCHEDULER_FUSION, as medians of runs that
alternate and for each run:

- the messages that a worker sends in a step, and those that travelled inside another;
- the microseconds of its processor time for a step;
- the time of a step.

Every step checks its sums.
"""

import argparse
import functools
import statistics
import sys
from typing import Any, Dict, Iterator, List, Optional

from benchmarks.lab import arms, lab_job, options
from benchmarks.lab.output import add_out_option, give, keep
from bytescheduler._advise import models
from bytescheduler._advise.shape import Shape
from bytescheduler._native import partition_and_credit

SETTINGS = ("0", "16KiB")
CLASSES = 1000


def tensors(scale: int, compute_s: float) -> List[models.Step]:
    """Return what a step has of each tensor, in forward order; a weight has its layer's compute."""
    steps = []

    def add(name: str, num_params: int, forward_s: float = 0.0, backward_s: float = 0.0) -> None:
        steps.append(models.Step(name, 4 * max(1, num_params // scale), forward_s, backward_s))

    *convolutions, last = models.scaled("resnet50", 1, compute_s)
    for (name, size_bytes, *seconds), channels in zip(convolutions, channels_out()):
        add(f"{name}.weight", size_bytes // 4 - 2 * channels, *seconds)
        add(f"{name}.gamma", channels)
        add(f"{name}.beta", channels)
    add("fc.weight", last.size_bytes // 4 - CLASSES, last.forward_s, last.backward_s)
    add("fc.bias", CLASSES)
    return steps


def channels_out() -> Iterator[int]:
    """Return how many channels each convolution has (He et al. 2016, table 1), in forward order."""
    yield 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from (width, width, 4 * width)
            if block == 0:
                yield 4 * width  # the shortcut


def layers(args: argparse.Namespace, group: int) -> List[str]:
    """Return the tensors as wire_benchmark takes layers.

    The last of a group in backward's order, which is the first here, ends when all have.
    """
    steps = tensors(args.scale, args.compute)
    words = []
    for place, step in enumerate(steps):
        first = (len(steps) - 1 - place) % group == 0
        mates = steps[max(0, place - group + 1) : place + 1]
        backward_s = sum(mate.backward_s for mate in mates) if first else 0
        words.append(f"{step.size_bytes}:{step.forward_s * 1e6:.0f}:{backward_s * 1e6:.0f}:{place}")
    return words


def sizes_env(rate: str, shape: Shape = lab_job.USUAL) -> Dict[str, str]:
    """Return partition and credit that suit a link of that rate; or none, if it has no limit.

    A job whose tensors are mostly small may find them late or never, and each job its own.
    """
    if rate == "none":
        return {}
    partition, credit = partition_and_credit(
        bytes_per_second=lab_job.payload_bytes_per_s(rate),
        round_trip_s=0.0,
        servers=shape.servers,
    )
    return {"BYTESCHEDULER_PARTITION": str(partition), "BYTESCHEDULER_CREDIT": str(credit)}


def measure(args: argparse.Namespace, about: Dict[str, Any], setting: str) -> Dict[str, float]:
    """Run one job."""
    worker = [args.native, "replay", str(args.iterations), *layers(args, about["group"])]
    env = {"BYTESCHEDULER_FUSION": setting, **sizes_env(about["rate"], args.shape)}
    node = [args.native, "node"]
    ran: List[Any] = lab_job.run("native", worker, env, args.timeout, node, args.shape)
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
            run = functools.partial(measure, args, about, setting)
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
    parser.add_argument(
        "--scale",
        type=options.count(),
        default=16,
        help="divide the parameters by this, which makes more of the tensors small",
    )
    parser.add_argument("--compute", type=float, default=0.05, help="seconds of compute a step")
    parser.add_argument("--iterations", type=int, default=32)
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--rates", type=lab_job.rates, default="10gbit,1gbit")
    parser.add_argument("--groups", type=options.counts, default="1,15,161")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    lab_job.add_shape_options(parser)
    add_out_option(parser)
    args = parser.parse_args()
    args.shape = lab_job.shape_of(parser, args, args.rates)
    result = {
        "model": "resnet50",
        "tensors": len(tensors(args.scale, args.compute)),
        "scale": args.scale,
        "compute_s": args.compute,
        "shape": args.shape._asdict(),
        "rows": [],
    }
    for rate in args.rates:
        with lab_job.lab(rate, args.shape):
            for group in args.groups:
                compare(args, {"rate": rate, "group": group}, result)
    give(result, args)


if __name__ == "__main__":
    main()
