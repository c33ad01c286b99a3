"""Speed of the servers' sums beside what memory can do: ``python -m benchmarks.reduce``.

Runs ``reduce_benchmark`` and prints, as JSON, median GB/s (of what is read and written) of every
kernel and dtype, for ``target = a + b`` (sum2) and ``accumulator += addend`` (sum); of sums of
several inputs, as a server makes them; and of two loops of STREAM on float64. "memory" is arrays
larger than most caches, "cache" a partition's. ``of_stream_add`` is what the fastest sum2 reaches
of STREAM's add, which moves the same bytes. ``--draw`` makes a plot of such a JSON.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
from typing import Any, Dict, List

from .output import add_out_option, give

# By kind of sum, place, kernel and dtype: GB/s.
Speeds = Dict[str, Dict[str, Dict[str, Dict[str, float]]]]
KERNELS = ("scalar", "avx2", "avx512")  # the fastest last


def kernel_of(name: str) -> str:
    """Return the kernel in the name of a benchmark, or the first one if there is none."""
    return next((word for word in name.split("/") if word in KERNELS), KERNELS[0])


def summary(run: Dict[str, Any]) -> Dict[str, Any]:
    """Return the medians of a run of reduce_benchmark, which names them KIND/.../PLACE."""
    runs: Dict[str, List[float]] = {}
    for row in run["benchmarks"]:
        if row["run_type"] == "iteration":
            runs.setdefault(row["run_name"], []).append(row["bytes_per_second"])
    stream: Dict[str, float] = {}
    sums: Speeds = {}
    inputs: Dict[str, Dict[str, float]] = {}
    for name, speeds in sorted(runs.items(), key=lambda item: KERNELS.index(kernel_of(item[0]))):
        speed = round(statistics.median(speeds) / 1e9, 2)
        kind, *names, place = name.split("/")
        if kind == "stream":
            stream[names[0]] = speed
        elif kind in ("sum", "sum2"):
            kernel, dtype = names
            of_kind = sums.setdefault(kind, {}).setdefault(place, {})
            of_kind.setdefault(kernel, {})[dtype] = speed
        elif kind == "inputs":
            number, dtype = names
            inputs.setdefault(number, {})[dtype] = speed
    best = list(sums["sum2"]["memory"].values())[-1]
    return {
        "gbytes_per_s": {"stream": stream, **sums, "inputs": inputs},
        "of_stream_add": {dtype: round(speed / stream["add"], 3) for dtype, speed in best.items()},
    }


def draw(result: Dict[str, Any], path: str) -> None:
    """Write the speeds of all kernels in memory and in a cache as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"  # the same bytes for the same figures
    speeds = result["gbytes_per_s"]
    figure, both = pyplot.subplots(1, 2, figsize=(9, 3))
    for axes, (place, kernels) in zip(both, speeds["sum2"].items()):
        width = 0.8 / len(kernels)
        for index, (kernel, of_kernel) in enumerate(kernels.items()):
            at = [position + index * width for position in range(len(of_kernel))]
            axes.bar(at, list(of_kernel.values()), width, label=kernel)
            axes.set_xticks(range(len(of_kernel)), list(of_kernel), rotation=45)
        if place == "memory":
            axes.axhline(speeds["stream"]["add"], color="black", linestyle=":", label="STREAM add")
        axes.set_title(f"in {place}")
        axes.set_ylabel("GB/s")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run the benchmark and print its medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--binary", default="build/benchmarks/reduce_benchmark")
    add_out_option(parser)
    parser.add_argument("--draw", nargs=2, metavar=("JSON", "SVG"), help="only draw")
    args = parser.parse_args()
    if args.draw:
        draw(json.loads(pathlib.Path(args.draw[0]).read_text()), args.draw[1])
        return
    command = [
        args.binary,
        "--benchmark_format=json",
        "--benchmark_filter=^(stream|sum2?|inputs)/",
        "--benchmark_min_time=0.1",
        f"--benchmark_repetitions={args.repeats}",
        "--benchmark_enable_random_interleaving=true",
    ]
    try:
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise SystemExit(
            f"{args.binary} is not there: ninja -C build reduce_benchmark (docs/performance.md), "
            "or say where with --binary"
        ) from None
    give(summary(json.loads(ran.stdout)), args)


if __name__ == "__main__":
    main()
