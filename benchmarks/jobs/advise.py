"""Predictions of `bytescheduler advise` beside the replay benchmark, on the same configurations.

Each configuration is a model, a rate, and as much compute that r = (model bytes / rate) / compute
is as named. What was measured before is kept in the file of --out, so that it can be done in parts.
Needs root (network namespaces), iproute2 and mxnet.

    python -m benchmarks.jobs.advise --out advise.json
    python -m benchmarks.jobs.advise --table advise.json
"""

import argparse
import itertools
import json
import pathlib
import sys
import time
from typing import Any, Dict, List

from benchmarks.jobs import replay
from benchmarks.lab import lab_job
from bytescheduler._advise import models
from bytescheduler._advise.advice import Cluster
from bytescheduler._process.numbers import bits_per_s

MODELS = {"vgg16": 16, "resnet50": 4, "bert-large": 32, "gpt2": 16}  # and what divides them
RATES = ("1gbit", "500mbit")
RATIOS = (0.5, 1.0, 1.5)
ARMS = replay.POLICIES


def cluster(rate: str) -> Cluster:
    """Return the lab as a cluster; partition and credit suit its links, as in its jobs."""
    return replay.cluster_of(lab_job.USUAL, bits_per_s(rate))


def configurations() -> List[Dict[str, Any]]:
    """Return all of them, those of one rate together."""
    found = []
    for rate, (model, scale), ratio in itertools.product(RATES, MODELS.items(), RATIOS):
        size = sum(step.size_bytes for step in models.scaled(model, scale, 1.0))
        compute = size / cluster(rate).bytes_per_s / ratio
        found.append(
            {"model": model, "scale": scale, "rate": rate, "r": ratio, "compute": round(compute, 3)}
        )
    return found


def name_of(row: Dict[str, Any]) -> str:
    """Return a configuration's name."""
    return f"{row['model']}/{row['scale']} {row['rate']} r={row['r']}"


def compare(row: Dict[str, Any], args: argparse.Namespace) -> Dict[str, Any]:
    """Return the configuration with what was measured and predicted by arm, in seconds.

    The lab has the configuration's rate.
    """
    cell = replay.Cell(row["model"], row["scale"], row["compute"], row["r"])
    found: Dict[str, Any] = {**row, "measured": {}, "predicted": {}}
    for arm, policy in ARMS.items():
        measured = replay.run_steps(arm, cell, args, args.iterations, {})
        if measured is None:
            raise SystemExit(f"{name_of(row)}, {arm}: hung")
        found["measured"][arm] = measured
        found["predicted"][arm] = cluster(row["rate"]).predict(cell.steps, policy).step_s
    return found


def table(rows: Dict[str, Dict[str, Any]]) -> str:
    """Return what was measured and predicted as Markdown."""
    lines = [
        "| configuration | compute | ours: measured, predicted | | FIFO: measured, predicted | "
        "| priority saves: measured, predicted |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        cells = [name, f"{row['compute']:.3f}"]
        for arm in ARMS:
            measured, predicted = row["measured"][arm], row["predicted"][arm]
            cells += [f"{measured:.3f}, {predicted:.3f}", f"{predicted / measured - 1:+.1%}"]
        gains = (
            1 - row[what]["ours"] / row[what]["ours-fifo"] for what in ("measured", "predicted")
        )
        cells.append(", ".join(f"{gain:+.1%}" for gain in gains))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, as long as there is time, and predict it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="advise.json", help="what is kept and written")
    parser.add_argument("--table", metavar="FILE", help="only print what is in it as Markdown")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--most-s", type=float, default=1e9, help="begin nothing after this long")
    parser.add_argument("--timeout", type=float, default=40, help="as of benchmarks.jobs.replay")
    replay.add_device_option(parser)
    args = parser.parse_args()
    replay.require_counted_steps(parser, args)
    args.by_name, args.shape = False, lab_job.USUAL
    out = pathlib.Path(args.table or args.out)
    rows: Dict[str, Dict[str, Any]] = json.loads(out.read_text()) if out.exists() else {}
    if args.table:
        print(table(rows))
        return
    begin = time.monotonic()
    missing = [row for row in configurations() if name_of(row) not in rows]
    for rate, group in itertools.groupby(missing, key=lambda row: str(row["rate"])):
        args.rate = rate
        with lab_job.lab(rate):
            for row in group:
                if time.monotonic() - begin > args.most_s:
                    return
                rows[name_of(row)] = compare(row, args)
                out.write_text(json.dumps(rows, indent=1) + "\n")
                print(table({name_of(row): rows[name_of(row)]}).splitlines()[-1], file=sys.stderr)


if __name__ == "__main__":
    main()
