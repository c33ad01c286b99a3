"""Speed of the servers' sums beside what memory can do: ``python -m benchmarks.engine.reduce``.

Runs ``reduce_benchmark`` several times and prints, as JSON, medians over the runs:

``gbytes_per_s``
    the bytes that are read and written: by copies and two loops of STREAM on float64; by every
    kernel and dtype for ``target = a + b`` (sum2) and ``accumulator += addend`` (sum); and by sums
    of several inputs.  "memory" is arrays larger than most caches, "cache" a partition's.
``of_stream_add``
    the fastest sum2 over STREAM's add, which moves the same bytes.
``of_streaming_copy``
    the fastest float32 sum in memory over a copy that stores past the cache: both in bytes moved,
    so 1 is the traffic of the copy / 3 in bytes of the addend.
``of_float32``
    elements a second of the fastest float16 and bfloat16 kernels over those of float32.
``of_pairwise``
    speed of sums of several inputs over a copy and one addition of whole arrays after the other.

    program=build/release/benchmarks/reduce_benchmark
    python -m benchmarks.engine.reduce --binary $program --out reduce.json
    python -m benchmarks.engine.reduce --draw reduce.json docs/results/reduce.svg
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
from typing import Any, Callable, Dict, List

from benchmarks.lab import options, picture
from benchmarks.lab.output import add_out_option, give, keep

# By kind, then by place, kernel and dtype, or way, number and dtype: GB/s.
Speeds = Dict[str, Any]
KERNELS = ("scalar", "avx2", "avx512", "avx512fp16")  # the fastest last
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
WAYS = ("pairwise", "pairwise-partitions", "fused", "fused-partitions")
ORDER = ("memory", "cache", *KERNELS, *WAYS, "2", "4", "8", *DTYPES)
HALVES = ("float16", "bfloat16")  # with half a float32's bytes


def place_of(name: str) -> List[int]:
    """Return what sorts a benchmark as the names above; they run in any order."""
    return [ORDER.index(word) if word in ORDER else -1 for word in name.split("/")]


def keys_of(name: str) -> List[str]:
    """Return where in the result the benchmark KIND/.../PLACE stands."""
    kind, *names, place = name.split("/")
    if kind in ("stream", "inputs"):  # in memory only
        return [kind, *names]
    return [kind, place, *names]


def medians(runs: List[Dict[str, Any]]) -> Speeds:
    """Return the median GB/s of each benchmark over runs of reduce_benchmark."""
    speeds: Dict[str, List[float]] = {}
    for run in runs:
        for row in run["benchmarks"]:
            if row["run_type"] == "iteration":
                speeds.setdefault(row["run_name"], []).append(row["bytes_per_second"])
    result: Speeds = {}
    for name, of_name in sorted(speeds.items(), key=lambda item: place_of(item[0])):
        *keys, last = keys_of(name)
        level = result
        for key in keys:
            level = level.setdefault(key, {})
        level[last] = round(statistics.median(of_name) / 1e9, 2)
    return result


def fastest(kernels: Dict[str, Dict[str, float]]) -> Dict[str, float]:
    """Return the speeds of the last, which is the fastest, kernel."""
    return list(kernels.values())[-1]


def of_float32(speeds: Speeds) -> Dict[str, Any]:
    """Return elements a second over those of float32, by kind, place and dtype."""
    result: Dict[str, Any] = {}
    for kind in ("sum", "sum2"):
        for place, kernels in speeds[kind].items():
            best = fastest(kernels)
            result.setdefault(kind, {})[place] = {
                dtype: round(2 * best[dtype] / best["float32"], 3)
                for dtype in HALVES
                if dtype in best
            }
    return result


def of_pairwise(inputs: Speeds) -> Dict[str, Any]:
    """Return speeds over those of pairwise sums, by way, number of inputs and dtype."""
    return {
        way: {
            number: {
                dtype: round(speed / inputs["pairwise"][number][dtype], 3)
                for dtype, speed in of_number.items()
            }
            for number, of_number in of_way.items()
        }
        for way, of_way in inputs.items()
        if way != "pairwise"
    }


def summary(runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return medians and what they are of each other."""
    speeds = medians(runs)
    add = speeds["stream"]["add"]
    copy = speeds["copy"]["memory"]["streaming"]
    best = fastest(speeds["sum2"]["memory"])
    return {
        "runs": len(runs),
        "of_streaming_copy": round(fastest(speeds["sum"]["memory"])["float32"] / copy, 3),
        "of_float32": of_float32(speeds),
        "of_pairwise": of_pairwise(speeds["inputs"]),
        "of_stream_add": {dtype: round(speed / add, 3) for dtype, speed in best.items()},
        "gbytes_per_s": speeds,
    }


def draw_bars(axes: Any, groups: Dict[str, Dict[str, float]]) -> None:  # noqa: ANN401 - no types
    """Draw a bar for each of a group's names, side by side."""
    width = 0.8 / len(groups)
    for index, (label, values) in enumerate(groups.items()):
        at = [position + index * width for position in range(len(values))]
        axes.bar(at, list(values.values()), width, label=label)
        axes.set_xticks([p + 0.4 - width / 2 for p in range(len(values))], list(values))
    axes.set_ylabel("GB/s")


def draw(result: Dict[str, Any], path: str) -> None:
    """Write the speeds of all kernels in memory and in a cache, and of several inputs, as SVG."""
    speeds = result["gbytes_per_s"]
    figure, (memory, cache, several) = picture.subplots(1, 3, figsize=(13, 3.2))
    for axes, place in ((memory, "memory"), (cache, "cache")):
        draw_bars(axes, speeds["sum2"][place])
        axes.tick_params(axis="x", rotation=45)
        axes.set_title(f"a + b in {place}", fontsize=9)
    copy = speeds["copy"]["memory"]["streaming"]
    memory.axhline(speeds["stream"]["add"], color="black", linestyle=":", label="STREAM add")
    memory.axhline(copy, color="black", linestyle="--", label="streaming copy")
    draw_bars(
        several,
        {
            way: {number: of_number["float32"] for number, of_number in of_way.items()}
            for way, of_way in speeds["inputs"].items()
        },
    )
    several.set_title("sums of n inputs from memory, float32", fontsize=9)
    for axes in (memory, cache, several):
        axes.legend(frameon=False, fontsize=7)
    picture.save(figure, path)


def run_once(binary: str, seconds: float = 0.1) -> Dict[str, Any]:
    """Run every benchmark of a program once, in any order, each for `seconds` at least."""
    command = [
        binary,
        "--benchmark_format=json",
        f"--benchmark_min_time={seconds:g}",
        "--benchmark_enable_random_interleaving=true",
    ]
    try:
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise SystemExit(
            f"{binary} is not there: ninja -C build {pathlib.Path(binary).name} "
            "(docs/results/method.md), "
            "or say where with --binary"
        ) from None
    result: Dict[str, Any] = json.loads(ran.stdout)
    return result


def run_often(
    args: argparse.Namespace, summary_of: Callable[[List[Dict[str, Any]]], Dict[str, Any]]
) -> None:
    """Run the program `args.binary` so often as `args.repeats` says, and give a summary."""
    runs: List[Dict[str, Any]] = []
    for _ in range(args.repeats):
        runs.append(run_once(args.binary))
        keep(summary_of(runs), args)  # in case the next run is interrupted
        print(f"run {len(runs)} of {args.repeats}", file=sys.stderr, flush=True)
    give(summary_of(runs), args)


def main() -> None:
    """Run the benchmark several times and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--binary", default="build/benchmarks/reduce_benchmark")
    add_out_option(parser)
    parser.add_argument("--draw", nargs=2, metavar=("JSON", "SVG"), help="only draw")
    args = parser.parse_args()
    if args.draw:
        draw(json.loads(pathlib.Path(args.draw[0]).read_text()), args.draw[1])
        return
    run_often(args, summary)


if __name__ == "__main__":
    main()
