"""Timelines that workers wrote (BYTESCHEDULER_TIMELINE): put together, and summed up.

``python -m bytescheduler.timeline t-r0.json t-r1.json`` prints a summary, ``-o all.json`` writes
one file of all of them with their clocks aligned.  docs/timeline.md says what stands in a file.
"""

import json
import math
import os
import statistics
import sys
import warnings
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    TextIO,
    Tuple,
    Union,
)

import click

from bytescheduler.errors import ConfigError

__all__ = ["TimelineError", "TimelineWarning", "merge", "summary", "table", "timeline", "write"]

Event = Dict[str, Any]
Path = Union[str, "os.PathLike[str]"]

_VERSION = 1
_ABOUT = "bytescheduler"
_END = "bytescheduler_end"
_MOST_TENSORS = 10
_MOST_STEPS = 5
# What an event of a phase must have, and the arguments of a span.
_NUMBERS = {"X": ("ts", "dur"), "C": ("ts",), "M": ()}
_COUNTS = {
    "tensor": ("key", "round", "bytes"),
    "queue": ("key", "part", "round", "bytes", "server"),
    "push": ("key", "part", "round", "bytes", "server"),
    "pull": ("key", "part", "round", "bytes", "server"),
}


class TimelineError(ConfigError):
    """A file is no timeline of ours, or does not belong to the others."""


class TimelineWarning(UserWarning):
    """Something is missing in a timeline, which is of use all the same."""


class _Place(NamedTuple):
    path: str
    line: int

    def wrong(self, what: str) -> TimelineError:
        return TimelineError(f"{self.path}, line {self.line}: {what}")


def _warn(text: str) -> None:
    warnings.warn(text, TimelineWarning, stacklevel=3)


def _is_number(value: object) -> bool:
    # No sane time is larger, in microseconds; what is not a number is not smaller either.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check(event: object, place: _Place) -> Event:
    if not isinstance(event, dict):
        raise place.wrong("not an event")
    phase, args = str(event.get("ph")), event.get("args")
    if phase not in _NUMBERS or not isinstance(args, dict) or not _is_count(event.get("pid")):
        raise place.wrong("not an event of a timeline of ours")
    for name in _NUMBERS[phase]:
        if not _is_number(event.get(name)):
            raise place.wrong(f"{name!r} is not a number")
    if phase == "X":
        category = str(event.get("cat"))
        if category not in _COUNTS:
            raise place.wrong(f"a span of an unknown kind, {category!r}")
        for name in _COUNTS[category]:
            if not _is_count(args.get(name)):
                raise place.wrong(f"{name!r} is not a number from 0")
    return event


def _lines(path: str, warn: Callable[[str], None]) -> Iterator[Tuple[_Place, Event]]:
    """Yield the events of a file; of one that is cut off, those that are whole."""
    line = ""
    number = 0
    first = True
    broken: Optional[_Place] = None
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if broken is not None:
                raise broken.wrong("not JSON")
            text = line.strip().rstrip(",")
            if text in ("", "[", "]"):
                continue
            place = _Place(path, number)
            try:
                event = json.loads(text)
            except (ValueError, RecursionError):
                event, broken = None, place  # fine if it is the last
            if first and not (isinstance(event, dict) and event.get("name") == _ABOUT):
                raise _not_ours(path)
            first = False
            if broken is not None:
                continue
            yield place, _check(event, place)
    if number == 0:
        raise TimelineError(f"{path} is empty")
    if broken is not None:
        warn(f"{path} is cut off: its last event is left out")
    elif line.strip() != "]":
        warn(f"{path} has no end: its worker did not end in good order, or still runs")


def _not_ours(path: str) -> TimelineError:
    return TimelineError(
        f"{path} is no timeline of bytescheduler (BYTESCHEDULER_TIMELINE writes them)"
    )


def _check_about(event: Event, place: _Place) -> None:
    args = event["args"]
    if not _is_count(args.get("version")) or not _is_count(args.get("rank")):
        raise _not_ours(place.path)
    if args["version"] > _VERSION:
        raise TimelineError(
            f"{place.path} has version {args['version']} of the format, and this is a program for "
            f"version {_VERSION}: read it with the bytescheduler that wrote it"
        )
    if not _is_count(args.get("start_ns")):
        raise place.wrong("'start_ns' is not a number from 0")


class _Worker(NamedTuple):
    path: str
    event: Event  # what it says about itself

    @property
    def start_ns(self) -> int:
        return int(self.event["args"]["start_ns"])


def _workers_of(path: str) -> Dict[int, _Worker]:
    """Return who wrote the file, by pid; several in one that was put together."""
    workers: Dict[int, _Worker] = {}
    for place, event in _lines(path, lambda text: None):  # told when all events are read
        if event.get("name") != _ABOUT:
            break
        _check_about(event, place)
        workers[event["pid"]] = _Worker(path, event)
    if not workers:
        raise _not_ours(path)
    return workers


def _all_workers(paths: Sequence[str]) -> Dict[int, _Worker]:
    workers: Dict[int, _Worker] = {}
    for path in paths:
        for pid, worker in _workers_of(path).items():
            if pid in workers:
                raise TimelineError(f"{workers[pid].path} and {path} are both of worker {pid - 1}")
            workers[pid] = worker
    sizes = {worker.event["args"].get("num_workers"): worker.path for worker in workers.values()}
    if len(sizes) > 1:
        described = ", ".join(f"{path} of {size} workers" for size, path in sizes.items())
        raise TimelineError(f"these are not of one job: {described}")
    return workers


def merge(paths: Iterable[Path]) -> Iterator[Event]:
    """Yield the events of several workers of one job, on one clock.

    The clocks are aligned by the wall clocks of the hosts, and are as good as these.  Times count
    from the start of the worker that started first.  A file is read while its events are taken, so
    files may be larger than memory.

    Parameters
    ----------
    paths : iterable of paths
        Files that BYTESCHEDULER_TIMELINE or `write` made, each worker in one of them.

    Raises
    ------
    TimelineError
        A file is no timeline, or is damaged otherwise than at its end; two are of the same worker,
        or not of one job.
    OSError
        A file cannot be read.

    Warns
    -----
    TimelineWarning
        A file is cut off, which costs its last event; or its worker could not write all events.
    """
    names = [os.fspath(path) for path in paths]
    workers = _all_workers(names)
    return _aligned(names, workers)


def _aligned(paths: Sequence[str], workers: Dict[int, _Worker]) -> Iterator[Event]:
    zero_ns = min(worker.start_ns for worker in workers.values())
    for worker in workers.values():
        yield {**worker.event, "args": {**worker.event["args"], "start_ns": zero_ns}}
    for path in paths:
        for place, event in _lines(path, _warn):
            if event.get("name") == _ABOUT:
                continue
            if event["pid"] not in workers:
                raise place.wrong(f"pid {event['pid']} told nothing about itself")
            if event.get("name") == _END and event["args"].get("lost"):
                _warn(f"{path} lacks {event['args']['lost']} events that could not be written")
            if "ts" in event:
                shift_us = (workers[event["pid"]].start_ns - zero_ns) / 1000
                event["ts"] = round(event["ts"] + shift_us, 3)
            yield event


def write(events: Iterable[Event], file: TextIO) -> None:
    """Write events as one timeline, an event a line."""
    separator = "[\n"
    for event in events:
        file.write(separator + json.dumps(event, separators=(",", ":")))
        separator = ",\n"
    file.write("\n]\n")


# -- summary ---------------------------------------------------------------------------------------

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
        longest mean wait for other workers.
    """
    steps: Dict[Tuple[int, int], _Step] = {}
    sizes: Dict[int, int] = {}
    for event in events:
        if event.get("ph") != "X" or event["args"]["round"] == 0:
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


def table(of: Dict[str, Any]) -> str:
    """Return what `summary` returned, for people."""
    if not of["steps"]:
        return "no step is in there\n"
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
    return (
        "A step, medians in milliseconds:\n"
        + _aligned_columns([["rank", "steps", *head], *ranks])
        + "\nThe longest steps:\n"
        + _aligned_columns([["rank", "step", *head], *steps])
        + "\nThe tensors that wait longest for other workers:\n"
        + _aligned_columns([wait_head, *tensors])
    )


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


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option(
    "-o", "--out", type=click.Path(), help="Write one timeline of all workers, clocks aligned."
)
def timeline(files: Tuple[str, ...], as_json: bool, out: Optional[str]) -> None:
    """Sum up the timelines of a job's workers (BYTESCHEDULER_TIMELINE)."""
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
