"""The share of the ideal step that stock, P3 and bytescheduler reach, by the shape of the job.

A shape is how many workers and servers there are, which of them share a host, and the rates of the
links (benchmarks/jobs/replay.py). Jobs replay a model's layers for a few steps. The ideal is the
shortest step that any placement of bytes on the servers allows (bytescheduler/_advise/links.py).

What is in the file of --out is not measured again, and each run is kept at once. So it can be done
in parts, such as of three minutes:

    python -m benchmarks.shapes --out shapes.json --most-s 180

A picture of all that is there lies beside the file then, as shapes.svg. Needs root (network
namespaces), iproute2, mxnet and matplotlib.

    python -m benchmarks.shapes --only 3+3,4+2 --again    # measures these anew
    python -m benchmarks.shapes --table shapes.json
"""

import argparse
import json
import math
import pathlib
import sys
import time
from typing import Any, Dict, List, NamedTuple

from benchmarks.jobs import plot, replay
from benchmarks.lab import arms, lab_job, machine, options, picture
from bytescheduler._advise import links, models
from bytescheduler._advise.advice import GOODPUT
from bytescheduler._advise.shape import Shape

ARMS = "stock,p3,kvstore,ours"
HEADS = {"p3": "P3", "kvstore": "ours on stock servers"}
PREDICTED = {"ours": "ours", "p3": "p3"}  # arms and their policies of `bytescheduler advise`


class Job(NamedTuple):
    """A shape, and the model that is replayed in it."""

    model: str
    scale: int
    compute_s: float
    rate: str
    shape: Shape

    @property
    def cell(self) -> replay.Cell:
        """The replay of the model."""
        return replay.Cell(self.model, self.scale, self.compute_s, None)

    @property
    def name(self) -> str:
        """The name in results."""
        return f"{self.shape.name}, {self.model} / {self.scale}, {self.rate}"

    def ideal_s(self, bytes_per_s: float) -> float:
        """Return the shortest step with usual links of that rate."""
        rate = links.model_bytes_per_s(self.shape, bytes_per_s)
        return models.ideal_s(self.cell.steps, rate)

    def predicted_s(self, bytes_per_s: float) -> Dict[str, float]:
        """Return what `bytescheduler advise` predicts of a step, by arm."""
        cluster = replay.cluster_of(self.shape, bytes_per_s * 8 / GOODPUT)
        return {
            arm: cluster.predict(self.cell.steps, policy).step_s
            for arm, policy in PREDICTED.items()
        }


# The compute is about what the busiest link takes for the model, unless it is the limit.
JOBS = (
    Job("vgg16", 8, 0.58, "1gbit", Shape(2, 2)),
    Job("resnet50", 2, 0.43, "1gbit", Shape(2, 2)),
    Job("bert-large", 16, 0.703, "1gbit", Shape(2, 2)),
    Job("gpt2", 8, 0.522, "1gbit", Shape(2, 2)),
    Job("vgg16", 8, 0.58, "1gbit", Shape(2, 2, together=2)),
    Job("resnet50", 2, 0.43, "1gbit", Shape(2, 2, together=2)),
    Job("bert-large", 16, 0.703, "1gbit", Shape(2, 2, together=2)),
    Job("vgg16", 16, 0.58, "500mbit", Shape(2, 1)),
    Job("vgg16", 64, 0.578, "250mbit", Shape(4, 2)),
    Job("resnet50", 8, 0.215, "500mbit", Shape(3, 3)),
    Job("bert-base", 32, 0.297, "500mbit", Shape(4, 4)),
    Job("bert-base", 8, 0.297, "2gbit", Shape(4, 4)),
    Job("resnet50", 16, 0.535, "200mbit", Shape(8, 4)),
    Job("resnet50", 16, 0.535, "100mbit", Shape(8, 8)),
    Job("vgg16", 8, 0.58, "1gbit", Shape(2, 4, together=2)),
    Job("resnet50", 8, 0.285, "500mbit", Shape(4, 4, together=2)),
    Job("vgg16", 16, 0.58, "1gbit", Shape(2, 2, factors=((1, 0.5),))),
    Job("vgg16", 16, 0.387, "1gbit", Shape(2, 2, factors=((3, 0.5),))),
)


def jobs_of(names: str) -> List[Job]:
    """Return the jobs of the shapes whose names begin so, for argparse."""
    wanted = names.split(",")
    for word in wanted:
        if not any(job.shape.name.split(",")[0] == word for job in JOBS):
            known = dict.fromkeys(job.shape.name.split(",")[0] for job in JOBS)
            raise argparse.ArgumentTypeError(f"{word!r}: want some of {','.join(known)}")
    return [job for job in JOBS if job.shape.name.split(",")[0] in wanted]


def read(path: pathlib.Path) -> Dict[str, Dict[str, Any]]:
    """Return the rows that were kept, by name."""
    rows = json.loads(path.read_text())["shapes"] if path.exists() else []
    return {row["name"]: row for row in rows}


def keep(rows: Dict[str, Dict[str, Any]], path: pathlib.Path) -> None:
    """Write the rows, in the order of `JOBS`."""
    order = [job.name for job in JOBS]
    known = [name for name in order if name in rows]
    others = [name for name in rows if name not in order]
    result = {"shapes": [rows[name] for name in (*known, *others)]}
    path.write_text(json.dumps(result, indent=1) + "\n")


def new_row(job: Job) -> Dict[str, Any]:
    """Measure the link of the lab that is there; return a row without any run."""
    carries = lab_job.measured_bytes_per_s(job.rate, job.shape)
    return {
        "name": job.name,
        **job._asdict(),
        "shape": job.shape._asdict(),
        "payload_bytes_per_s": carries,
        "ideal_s": job.ideal_s(carries),
        "predicted_s": job.predicted_s(carries),
        "all_s": {},
        "step_s": {},
        "stolen": {},
    }


def missing(row: Dict[str, Any], args: argparse.Namespace) -> List[str]:
    """Return the arms in the order of the runs that are to be made, which take turns."""
    done = {arm: len(row.get("all_s", {}).get(arm, [])) for arm in args.arms}
    return [arm for turn in range(args.repeats) for arm in args.arms if done[arm] <= turn]


def measure(job: Job, rows: Dict[str, Dict[str, Any]], args: argparse.Namespace) -> None:
    """Make the runs of a job that are missing, as long as there is time."""
    args.rate, args.shape = job.rate, job.shape
    with lab_job.lab(job.rate, job.shape):
        if job.name not in rows:
            rows[job.name] = new_row(job)
        row = rows[job.name]
        for arm in missing(row, args):
            if time.monotonic() > args.until:
                return
            took, stolen = replay.run_quietly(arm, job.cell, args, pathlib.Path(args.found))
            row["all_s"].setdefault(arm, []).append(took)
            row["stolen"].setdefault(arm, []).append(stolen)
            row["step_s"][arm] = replay.median(row["all_s"][arm])
            keep(rows, args.out)
            share = "hung" if took is None else f"{took:.3f} s, {row['ideal_s'] / took:.3f}"
            print(f"{job.name}, {arm}: {share}", file=sys.stderr, flush=True)


def table(rows: Dict[str, Dict[str, Any]]) -> str:
    """Return the rows as Markdown: seconds a step, and the shares of the ideal of what is ours."""
    names = [arm for arm in lab_job.ARMS if any(row["step_s"].get(arm) for row in rows.values())]
    mine = [arm for arm in names if arm not in ("stock", "p3")]
    heads = ["shape", *(HEADS.get(arm, arm) for arm in names), "ours, predicted", "ideal"]
    heads += [f"ideal / {HEADS.get(arm, arm)}" for arm in mine]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    for row in rows.values():
        times = {arm: row["step_s"].get(arm) for arm in names}
        words = [row["name"], *(f"{took:.3f}" if took else "–" for took in times.values())]
        words += [f"{row['predicted_s']['ours']:.3f}", f"{row['ideal_s']:.3f}"]
        shares = [row["ideal_s"] / (times[arm] or math.inf) for arm in mine]
        words += [f"{share:.3f}" if share else "–" for share in shares]
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and draw what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="shapes.json", help="what is kept")
    parser.add_argument("--table", metavar="FILE", help="only print what is in it as Markdown")
    parser.add_argument("--only", type=jobs_of, default=list(JOBS), help="shapes, such as 3+3,4+2")
    parser.add_argument("--again", action="store_true", help="drop what is there of these")
    parser.add_argument("--iterations", type=int, default=10, help="steps of a run")
    parser.add_argument("--repeats", type=options.count(), default=1)
    parser.add_argument(
        "--most-s", type=options.seconds, default=1e9, help="begin no run after this long"
    )
    parser.add_argument(
        "--timeout", type=options.seconds, default=40, help="as of benchmarks.jobs.replay"
    )
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    arms.add_arms_option(parser, lab_job.ARMS, ARMS)
    replay.add_device_option(parser)
    machine.add_option(parser)
    args = parser.parse_args()
    if args.table:
        print(table(read(pathlib.Path(args.table))))
        return
    replay.require_counted_steps(parser, args)
    if "ours-tuned" in args.arms:
        parser.error("--arms: ours-tuned would not settle in so few steps")
    args.by_name, args.found, args.framework = False, "/nonexistent", "mxnet"
    args.until = time.monotonic() + args.most_s
    rows = read(args.out)
    if args.again:
        for job in args.only:
            rows.pop(job.name, None)
    for job in args.only:
        if missing(rows.get(job.name, {}), args) and time.monotonic() < args.until:
            measure(job, rows, args)
    if any(row["step_s"] for row in rows.values()):
        picture.save(
            plot.of_shapes({"shapes": list(rows.values())}), str(args.out.with_suffix(".svg"))
        )


if __name__ == "__main__":
    main()
