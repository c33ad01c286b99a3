"""Predictions of `bytescheduler advise` beside the replay benchmark, on the same configurations.

Each configuration is a model, a rate, and as much compute that r = (model bytes / rate) / compute
is as named. What was measured before is kept in the file of --out, so that it can be done in parts.
Needs root (network namespaces), iproute2 and mxnet.

    python -m benchmarks.jobs.advise --out advise.json
    python -m benchmarks.jobs.advise --table advise.json

Results of `benchmarks.jobs.replay --framework torch` are compared as they are, without a run:

    python -m benchmarks.jobs.advise --torch replay-torch.json replay-torch-four.json

So are results with `--compression`:

    python -m benchmarks.jobs.advise --coded replay-coded.json replay-coded-100mbit.json
"""

import argparse
import itertools
import json
import pathlib
import sys
import time
from typing import Any, Dict, List

from benchmarks.jobs import replay
from benchmarks.lab import coded, lab_job, ranked
from benchmarks.pytorch import arms as torch_arms
from bytescheduler._advise import ddp, fsdp, models
from bytescheduler._advise.advice import Cluster
from bytescheduler._advise.shape import Shape
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


def _predicted_s(
    arm: torch_arms.Arm, layers: List[models.Step], hosts: Cluster, scale: int
) -> float:
    """Return the seconds of a step of an arm with DDP, FSDP2 or our updates that cross."""
    if arm.is_halved:
        layers = [layer._replace(size_bytes=layer.size_bytes // 2) for layer in layers]
    if arm.kind == "ddp":
        return ddp.step_s(layers, hosts.ring, arm.bucket_mb / scale / (2 if arm.is_halved else 1))
    if arm.kind == "fsdp":
        is_ours = arm.backend == torch_arms.OURS
        ours = fsdp.over_ours(hosts.ring, hosts.per_host)
        calls = ours if is_ours else fsdp.over_gloo(hosts.ring)
        return fsdp.step_s(layers, calls, reshards=arm.reshards)
    return hosts.predict(layers, "ours").step_s


def torch_rows(result: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return each step of a replay with PyTorch as it was measured, and as it is predicted.

    Its links have a rate.  Arms without DDP, FSDP2 or our updates that cross are left out.
    """
    shape, bits = Shape(**result["shape"]), bits_per_s(result["rate"])
    rows = []
    for cell in result["cells"]:
        layers = models.scaled(cell["model"], cell["scale"], cell["compute_s"])
        for name, measured in cell["step_s"].items():
            arm = torch_arms.ARMS[name]
            if measured is None or arm.kind not in ("ddp", "fsdp", "crossing"):
                continue
            hosts = replay.cluster_of(ranked.shape_of(arm, shape), bits)
            predicted = _predicted_s(arm, layers, hosts, cell["scale"])
            times = {"measured": measured, "predicted": predicted}
            rows.append({"name": f"{result['rate']}, {cell['name']}", "arm": name, **times})
    return rows


def coded_rows(result: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return each step of a replay with compression as it was measured, and as it is predicted."""
    hosts = replay.cluster_of(Shape(**result["shape"]), bits_per_s(result["rate"]))
    rows = []
    for cell in result["cells"]:
        layers = models.scaled(cell["model"], cell["scale"], cell["compute_s"])
        for arm, measured in cell["step_s"].items():
            if measured is None:
                continue
            job = coded.job_of(arm, layers)
            predicted = hosts.predict(layers, "ours") if job is None else hosts.predict_coded(job)
            times = {"measured": measured, "predicted": predicted.step_s}
            rows.append({"name": f"{result['rate']}, {cell['name']}", "arm": arm, **times})
    return rows


def compared_table(rows: List[Dict[str, Any]]) -> str:
    """Return what was measured and predicted as Markdown, an arm a column."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    heads = ["links, model, compute", *arms]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, of_name in itertools.groupby(rows, key=lambda row: str(row["name"])):
        of_arm = {
            row["arm"]: f"{row['measured']:.3f}, {row['predicted']:.3f} "
            f"({row['predicted'] / row['measured'] - 1:+.1%})"
            for row in of_name
        }
        lines.append("| " + " | ".join([name, *(of_arm.get(arm, "") for arm in arms)]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, as long as there is time, and predict it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="advise.json", help="what is kept and written")
    parser.add_argument("--table", metavar="FILE", help="only print what is in it as Markdown")
    parser.add_argument(
        "--torch", nargs="+", metavar="FILE", help="only compare what was measured with PyTorch"
    )
    parser.add_argument(
        "--coded", nargs="+", metavar="FILE", help="only compare what was measured with compression"
    )
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--most-s", type=float, default=1e9, help="begin nothing after this long")
    parser.add_argument("--timeout", type=float, default=40, help="as of benchmarks.jobs.replay")
    replay.add_device_option(parser)
    args = parser.parse_args()
    if args.torch or args.coded:
        rows_of = torch_rows if args.torch else coded_rows
        results = (json.loads(pathlib.Path(path).read_text()) for path in args.torch or args.coded)
        print(compared_table([row for result in results for row in rows_of(result)]))
        return
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
