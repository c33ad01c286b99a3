"""The wait of an urgent tensor behind bulk on a full link, and its cost to the bulk.

One worker and one server on rate-limited hosts, our engine without MXNet. Thirty-two tensors are
pushed and pulled again and again, so that both directions of the link are full; every 5 ms an
urgent one, of 4 KB or --bytes, is pushed and pulled besides. Every sum is checked. Arms:
``native``, and ``native-fifo``, where nothing overtakes anything and the kernel takes what it
likes. Needs root (network namespaces) and iproute2.

    python -m benchmarks.jobs.urgent --out urgent.json

With `--compression` the arms ``native-METHOD`` compress the bulk, which counts with its own size.

    python -m benchmarks.jobs.urgent --rate 100mbit --compression onebit,topk

It reports for each arm the MB/s of bulk each way and three times in milliseconds. Each time is a
median over the repeats, of the median and of the 99th percentile:

- to the server, from the worker's timeline to the server's, on one clock;
- to the sum;
- to the sum with nothing else on the link.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
from typing import Any, Dict, List, Sequence

from benchmarks.lab import arms, coded, lab_job, machine, options
from benchmarks.lab.output import add_out_option
from bytescheduler._advise.shape import Shape

SHAPE = Shape(1, 1)
# Our engine without MXNet.
ARMS = [arm for arm in lab_job.ARMS if arm.startswith("native")]
CODED = {f"native-{method}": params for method, params in lab_job.METHODS.items()}
USUAL = "native-fifo,native"
URGENT_KEY = 0
TENSORS, TENSOR_BYTES = 32, 1 << 20


def quantiles(seconds: List[float]) -> "Dict[str, float]":
    """Return median and 99th percentile in milliseconds."""
    ranked = sorted(seconds)
    return {
        "median_ms": statistics.median(ranked) * 1e3,
        "p99_ms": ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)] * 1e3,
    }


def spans(path: pathlib.Path, category: str, size_bytes: int) -> "Dict[int, float]":
    """Return when the urgent key's spans began, by round, in seconds of the wall clock.

    Ends the program if a span has another size, such as that of one of several partitions.
    """
    events: List[Dict[str, Any]] = json.loads(path.read_text())
    start_s = events[0]["args"]["start_ns"] / 1e9
    found: Dict[int, float] = {}
    for event in events:
        if event.get("cat") != category or event["args"]["key"] != URGENT_KEY:
            continue
        if event["args"]["bytes"] != size_bytes:
            raise SystemExit(
                f"{path.name} has {event['args']['bytes']} bytes of the urgent tensor where all "
                f"{size_bytes} were expected in one piece; want fewer --bytes"
            )
        found[event["args"]["round"]] = start_s + event["ts"] / 1e6
    return found


def to_server(ready: "Dict[int, float]", came: "Dict[int, float]", count: int) -> List[float]:
    """Return the seconds of the last `count` rounds, all of which both sides have to have seen."""
    both = sorted(ready.keys() & came.keys())
    if len(both) < count:
        raise SystemExit(f"the timelines have {len(both)} of the {count} urgent tensors")
    return [came[number] - ready[number] for number in both[-count:]]


def coding_of(arm: str) -> List[str]:
    """Return the words that tell the program how an arm compresses the bulk; none: not at all."""
    params = dict(CODED.get(arm, {}))
    if not params:
        return []
    name = params.pop("compressor", None) or params.pop("type")
    return [",".join([str(name), *(f"{option}={value}" for option, value in params.items())])]


def measure(arm: str, args: argparse.Namespace) -> Dict[str, Any]:
    """Run one job."""
    count = args.fifo_count if arm.endswith("fifo") else args.count
    worker = [args.native, "urgent", str(TENSORS), str(TENSOR_BYTES), str(count), str(args.bytes)]
    worker += coding_of(arm)
    engine = "native" if arm in CODED else arm
    with tempfile.TemporaryDirectory() as folder:
        timeline = pathlib.Path(folder) / "timeline.json"
        env = {"BYTESCHEDULER_TIMELINE": str(timeline)}
        found = lab_job.run(engine, worker, env, args.timeout, [args.native, "node"], SHAPE)[0]
        ready = spans(timeline.with_name("timeline-r0.json"), "queue", args.bytes)
        came = spans(timeline.with_name("timeline-s0.json"), "peers", args.bytes)
    return {
        "to_server": quantiles(to_server(ready, came, count)),
        "to_sum": quantiles(found["behind_s"]),
        "to_sum_idle": quantiles(found["idle_s"]),
        "bulk_mbytes_per_s": found["bulk_bytes_per_s"] / 1e6,
    }


def medians(
    runs: List[Dict[str, Any]], ways: Sequence[str], digits: int
) -> Dict[str, Dict[str, float]]:
    """Return what `quantiles` found each way, as medians over runs."""
    return {
        way: {
            name: round(statistics.median(run[way][name] for run in runs), digits)
            for name in ("median_ms", "p99_ms")
        }
        for way in ways
    }


def summary(runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return medians over runs."""
    result: Dict[str, Any] = medians(runs, ("to_server", "to_sum", "to_sum_idle"), 3)
    rates = [run["bulk_mbytes_per_s"] for run in runs]
    return {**result, "bulk_mbytes_per_s": round(statistics.median(rates), 2)}


def main() -> None:
    """Run both arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of each link")
    parser.add_argument(
        "--bytes",
        type=options.count(4),
        default=4096,
        help="of the urgent tensor, which must be one piece",
    )
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument(
        "--count", type=options.count(), default=400, help="urgent tensors of a run"
    )
    parser.add_argument(
        "--fifo-count", type=options.count(), default=12, help="the same, where each waits long"
    )
    arms.add_arms_option(parser, ARMS)
    coded.add_option(parser)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    machine.add_option(parser)
    add_out_option(parser)
    args = parser.parse_args()
    if args.bytes % 4:
        parser.error("--bytes: want a multiple of 4, as the tensor is one of float32")
    args.arms = coded.arms_of(args.compression, args.arms or [], "native") or USUAL.split(",")
    with lab_job.lab(args.rate, SHAPE):
        arms.alternate(
            args, lambda arm: measure(arm, args), summary, {"rate": args.rate, "bytes": args.bytes}
        )


if __name__ == "__main__":
    main()
