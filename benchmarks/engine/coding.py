"""Speed of codecs beside what memory can do: ``python -m benchmarks.engine.coding``.

Runs ``coding_benchmark`` several times and prints, as JSON, medians over the runs:

``gbytes_per_s``
    the float32 that one core encodes, with a residual (kept) and without (alone), decodes, and adds
    to a sum in a cache; and what it copies.
``of_traffic``
    the bytes that an encoder or decoder reads and writes in memory in a second, over those of the
    fastest copy of the same run: 1 is all that memory can do.
``of_float32``
    the elements a second that a server adds from codes, over those that it adds from float32.

    program=build/release/benchmarks/coding_benchmark
    python -m benchmarks.engine.coding --binary $program --out coding.json
    python -m benchmarks.engine.coding --table coding.json
"""

import argparse
import json
import pathlib
import statistics
from typing import Any, Dict, List

from benchmarks.engine.reduce import run_often
from benchmarks.lab import options
from benchmarks.lab.output import add_out_option

FLOAT_BYTES = 4
MOVING = ("encode", "decode")  # these read and write arrays in memory
# The columns of the table: the kind of a benchmark, and the text behind the codec's name.
COLUMNS = {
    "encode, with a residual": ("encode", "/kept"),
    "encode, without": ("encode", "/alone"),
    "decode": ("decode", ""),
}


def _medians(runs: List[Dict[str, Any]], figure: str) -> Dict[str, float]:
    """Return a figure's median over runs, of each benchmark that has it."""
    found: Dict[str, List[float]] = {}
    for run in runs:
        for row in run["benchmarks"]:
            if row["run_type"] == "iteration" and figure in row:
                found.setdefault(row["run_name"], []).append(row[figure])
    return {name: statistics.median(of) for name, of in sorted(found.items())}


def summary(runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return medians and what they are of each other."""
    speeds = _medians(runs, "bytes_per_second")
    traffic = {
        name: speeds[name] / FLOAT_BYTES * bytes_an_element
        for name, bytes_an_element in _medians(runs, "traffic").items()
    }
    copied = max(of for name, of in traffic.items() if name.startswith("copy/"))
    return {
        "runs": len(runs),
        "copy_traffic_gbytes_per_s": round(copied / 1e9, 2),
        "of_traffic": {
            name: round(of / copied, 3)
            for name, of in traffic.items()
            if name.split("/")[0] in MOVING
        },
        "of_float32": {
            name[len("add/") :]: round(of / speeds["add/float32"], 3)
            for name, of in speeds.items()
            if name.startswith("add/") and name != "add/float32"
        },
        "gbytes_per_s": {name: round(of / 1e9, 2) for name, of in speeds.items()},
    }


def table(result: Dict[str, Any]) -> str:
    """Return a result as Markdown: GB/s of float32, and in brackets the share of the traffic."""
    heads = ["codec", *COLUMNS, "adding / adding float32"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for codec, of_float32 in result["of_float32"].items():
        words = [codec]
        for kind, end in COLUMNS.values():
            name = f"{kind}/{codec}{end}"
            speed, share = result["gbytes_per_s"].get(name), result["of_traffic"].get(name)
            words.append("–" if speed is None else f"{speed:.2f} ({share:.2f})")
        lines.append("| " + " | ".join([*words, f"{of_float32:.2f}"]) + " |")
    copied = f"{result['copy_traffic_gbytes_per_s']:.1f}"
    return "\n".join([*lines, "", f"traffic of the fastest copy: {copied} GB/s"])


def main() -> None:
    """Run the benchmark several times and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--binary", default="build/benchmarks/coding_benchmark")
    add_out_option(parser)
    parser.add_argument("--table", metavar="FILE", help="only print what is in it as Markdown")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(pathlib.Path(args.table).read_text())))
        return
    run_often(args, summary)


if __name__ == "__main__":
    main()
