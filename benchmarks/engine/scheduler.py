"""How many decisions a second the scheduler makes: ``python -m benchmarks.engine.scheduler``.

Runs ``scheduler_benchmark``, whose head says what each of its benchmarks is, several times, and
prints as JSON the decisions (with two producers: partitions) a second of each, of every run.

    python -m benchmarks.engine.scheduler --out scheduler.json
"""

import argparse
import sys
from typing import Any, Dict, List, Tuple

from benchmarks.engine.reduce import run_once
from benchmarks.lab import options
from benchmarks.lab.output import add_out_option, give, keep

SECONDS = 0.5  # for each benchmark


def place_of(row: Dict[str, Any]) -> Tuple[int, int]:
    """Return where a benchmark stands in the program; they run in any order."""
    return row["family_index"], row["per_family_instance_index"]


def summary(runs: List[Dict[str, Any]]) -> Dict[str, Dict[str, List[int]]]:
    """Return what each benchmark made in every run, in the order of the program."""
    found: Dict[str, List[int]] = {}
    for run in runs:
        for row in sorted(run["benchmarks"], key=place_of):
            found.setdefault(row["run_name"], []).append(round(row["items_per_second"]))
    return {"items_per_second": found}


def main() -> None:
    """Run the benchmark several times and print what it made as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=options.count(), default=3)
    parser.add_argument("--binary", default="build/benchmarks/scheduler_benchmark")
    add_out_option(parser)
    args = parser.parse_args()
    runs: List[Dict[str, Any]] = []
    for _ in range(args.repeats):
        runs.append(run_once(args.binary, SECONDS))
        keep(summary(runs), args)  # in case the next run is interrupted
        print(f"run {len(runs)} of {args.repeats}", file=sys.stderr, flush=True)
    give(summary(runs), args)


if __name__ == "__main__":
    main()
