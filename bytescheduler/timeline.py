"""Timelines that workers and servers wrote (BYTESCHEDULER_TIMELINE): put together, and summed up.

``bytescheduler timeline t-r0.json t-r1.json`` prints a summary, ``-o all.json`` writes
one file of all of them with their clocks aligned; servers' files tell besides who came last.
docs/timeline.md says what stands in a file.
"""

import json
import math
import os
import statistics
import sys
import warnings
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import click

from bytescheduler._timeline_files import Event, TimelineError, TimelineWarning, merge, write

__all__ = ["TimelineError", "TimelineWarning", "merge", "summary", "table", "timeline", "write"]

_FIRST_SERVER_PID = 20001
_MOST_TENSORS = 10
_MOST_STEPS = 5

Interval = Tuple[float, float]


def _covered(intervals: List[Interval]) -> float:
    """Return how long at least one of the intervals lasts."""
    total = 0.0
    reached = -math.inf
    for begin, end in sorted(intervals):
        if end > reached:
            total += end - max(begin, reached)
            reached = end
    return total


class _Step:
    """What one worker did in one round."""

    def __init__(self) -> None:
        self.begin = math.inf
        self.end = -math.inf
        self.bytes = 0
        self.queued: List[Interval] = []
        self.pushed: Dict[Tuple[int, int], Interval] = {}
        self.pulled: Dict[Tuple[int, int], Interval] = {}

    def add(self, event: Event) -> None:
        category, args = event["cat"], event["args"]
        begin, end = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
        self.begin = min(self.begin, begin)
        self.end = max(self.end, end)
        if category == "queue":
            self.queued.append((begin, end))
        elif category == "push":
            self.bytes += args["bytes"]
            self.pushed[args["key"], args["part"]] = (begin, end)
        elif category == "pull":
            self.pulled[args["key"], args["part"]] = (begin, end)

    def waits(self) -> List[Interval]:
        """Return when acknowledged partitions waited for their sums."""
        both = (
            (self.pushed[part], pull) for part, pull in self.pulled.items() if part in self.pushed
        )
        return [(push[1], pull[1]) for push, pull in both if pull[1] > push[1]]

    def wait_by_key(self) -> Dict[int, float]:
        """Return for how long each tensor, all acknowledged, waited for the last of its sums."""
        acknowledged: Dict[int, float] = {}
        summed: Dict[int, float] = {}
        for ends, spans in ((acknowledged, self.pushed), (summed, self.pulled)):
            for (key, _), (_, end) in spans.items():
                ends[key] = max(ends.get(key, end), end)
        return {key: max(0.0, end - acknowledged.get(key, end)) for key, end in summed.items()}

    def row(self, rank: int, number: int) -> Dict[str, Any]:
        return {
            "rank": rank,
            "step": number,
            "seconds": self.end - self.begin,
            "queued_s": _covered(self.queued),
            "wire_s": _covered(list(self.pushed.values())),
            "waiting_s": _covered(self.waits()),
            "bytes": self.bytes,
        }


class _Servers:
    """What the servers say: how long sums took, and who came last."""

    def __init__(self) -> None:
        self.sums: Dict[int, List[float]] = {}
        self.late: Dict[int, List[float]] = {}

    def add(self, event: Event) -> None:
        seconds = event["dur"] / 1e6
        if event["cat"] == "sum":
            self.sums.setdefault(event["pid"] - _FIRST_SERVER_PID, []).append(seconds)
        elif seconds > 0:  # a worker that is alone is not late
            self.late.setdefault(event["args"]["last"], []).append(seconds)

    def rows(self) -> Dict[str, Any]:
        return {
            "servers": [
                {"rank": rank, "sums": len(times), "sum_s": statistics.fmean(times)}
                for rank, times in sorted(self.sums.items())
            ],
            "late": [
                {"rank": rank, "sums": len(times), "seconds": math.fsum(times)}
                for rank, times in sorted(self.late.items())
            ],
        }


_FIGURES = ("seconds", "queued_s", "wire_s", "waiting_s", "bytes")


def summary(events: Iterable[Event]) -> Dict[str, Any]:
    """Return where the time of each step went, as numbers that can be written as JSON.

    A step is a round: what a worker sends between two uses of the same key.  The values that keys
    begin with, round 0, are left out.

    Returns
    -------
    dict
        ``steps``: for each rank and step the seconds from its first gradient to its last sum; the
        seconds in which at least one partition was queued, was on the wire (sent and not
        acknowledged), or waited for its sum after that, mostly for other workers; and the bytes
        sent.  ``ranks``: the medians over the steps of each rank.  ``tensors``: the ten with the
        longest mean wait for other workers.  From servers' files: ``servers``, each with the number
        of sums it made and the mean seconds from the last push of a sum to the sum; and ``late``,
        each worker that came last with the number of sums and the seconds that the first to come
        waited for it.
    """
    steps: Dict[Tuple[int, int], _Step] = {}
    sizes: Dict[int, int] = {}
    servers = _Servers()
    for event in events:
        if event.get("ph") != "X" or event["args"]["round"] == 0:
            continue
        if event["cat"] in ("peers", "sum"):
            servers.add(event)
            continue
        where = (event["pid"] - 1, event["args"]["round"])
        steps.setdefault(where, _Step()).add(event)
        if event["cat"] == "tensor":
            sizes[event["args"]["key"]] = event["args"]["bytes"]
    rows = [steps[where].row(*where) for where in sorted(steps)]
    return {
        "steps": rows,
        "ranks": [_medians(rank, rows) for rank in sorted({row["rank"] for row in rows})],
        "tensors": _longest_waits(steps, sizes),
        **servers.rows(),
    }


def _medians(rank: int, rows: List[Dict[str, Any]]) -> Dict[str, Any]:
    own = [row for row in rows if row["rank"] == rank]
    medians = {name: statistics.median(row[name] for row in own) for name in _FIGURES}
    return {"rank": rank, "steps": len(own), **medians}


def _longest_waits(
    steps: Dict[Tuple[int, int], _Step], sizes: Dict[int, int]
) -> List[Dict[str, Any]]:
    waits: Dict[int, List[Tuple[float, int, int]]] = {}
    for (rank, number), step in steps.items():
        for key, wait in step.wait_by_key().items():
            waits.setdefault(key, []).append((wait, rank, number))
    rows: List[Dict[str, Any]] = []
    for key, of_key in waits.items():
        longest, rank, number = max(of_key)
        rows.append(
            {
                "key": key,
                "bytes": sizes.get(key),
                "wait_mean_s": statistics.fmean(wait for wait, _, _ in of_key),
                "wait_max_s": longest,
                "rank_of_max": rank,
                "step_of_max": number,
            }
        )
    rows.sort(key=lambda row: (-row["wait_mean_s"], row["key"]))
    return rows[:_MOST_TENSORS]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _size(count: Optional[float]) -> str:
    if count is None:
        return "?"
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _aligned_columns(rows: List[List[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _worker_blocks(of: Dict[str, Any]) -> List[str]:
    head = ["sent", "ms", "queued", "on the wire", "waiting for others"]

    def cells(row: Dict[str, Any]) -> List[str]:
        times = [_ms(row[name]) for name in ("seconds", "queued_s", "wire_s", "waiting_s")]
        return [_size(row["bytes"]), *times]

    ranks = [[str(row["rank"]), str(row["steps"]), *cells(row)] for row in of["ranks"]]
    slowest = sorted(of["steps"], key=lambda row: -row["seconds"])[:_MOST_STEPS]
    steps = [[str(row["rank"]), str(row["step"]), *cells(row)] for row in slowest]
    tensors = [
        [
            str(row["key"]),
            _size(row["bytes"]),
            _ms(row["wait_mean_s"]),
            _ms(row["wait_max_s"]),
            str(row["rank_of_max"]),
            str(row["step_of_max"]),
        ]
        for row in of["tensors"]
    ]
    wait_head = ["key", "size", "mean ms", "longest", "on rank", "in step"]
    return [
        "A step, medians in milliseconds:\n" + _aligned_columns([["rank", "steps", *head], *ranks]),
        "The longest steps:\n" + _aligned_columns([["rank", "step", *head], *steps]),
        "The tensors that wait longest for other workers:\n"
        + _aligned_columns([wait_head, *tensors]),
    ]


def table(of: Dict[str, Any]) -> str:
    """Return what `summary` returned, for people."""
    blocks = _worker_blocks(of) if of["steps"] else []
    if of["late"]:
        late = [[str(row["rank"]), str(row["sums"]), _ms(row["seconds"])] for row in of["late"]]
        blocks.append(
            "Who came last, and for how long the first waited:\n"
            + _aligned_columns([["rank", "sums", "ms in all"], *late])
        )
    if of["servers"]:
        sums = [
            [str(row["rank"]), str(row["sums"]), f"{row['sum_s'] * 1e6:.1f}"]
            for row in of["servers"]
        ]
        blocks.append(
            "Servers, from the last push to the sum:\n"
            + _aligned_columns([["rank", "sums", "mean us"], *sums])
        )
    return "\n".join(blocks) or "no step is in there\n"


# -- command ---------------------------------------------------------------------------------------


def _run(paths: Sequence[str], as_json: bool, out: Optional[str]) -> None:
    events = merge(paths)  # refuses what is no timeline, before anything is written
    if out is not None:
        if os.path.exists(out) and any(os.path.samefile(out, path) for path in paths):
            raise TimelineError(f"{out} is one of the files to read")
        with open(out, "w", encoding="utf-8") as file:
            write(events, file)
        events = merge(paths)
    found = summary(events)
    click.echo(json.dumps(found, indent=2) if as_json else table(found), nl=as_json)


@click.command("timeline", short_help="Sum up where the time of a job's steps went.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option(
    "-o", "--out", type=click.Path(), help="Write one timeline of all files, clocks aligned."
)
def timeline(files: Tuple[str, ...], as_json: bool, out: Optional[str]) -> None:
    """Sum up the timelines of a job's workers and servers (BYTESCHEDULER_TIMELINE)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _run(files, as_json, out)
        except (TimelineError, OSError) as error:
            click.echo(f"bytescheduler: {error}", err=True)
            sys.exit(2)
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        click.echo(f"bytescheduler: {text}", err=True)


if __name__ == "__main__":
    timeline()
