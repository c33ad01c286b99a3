"""Timelines that workers and servers wrote (BYTESCHEDULER_TIMELINE): put together, and summed up.

``bytescheduler timeline t-r0.json t-r1.json`` prints a summary, ``-o all.json`` writes
one file of all of them with their clocks aligned; servers' files also show which worker came last.
docs/user/timeline.md says what stands in a file.
"""

import json
import math
import os
import statistics
import sys
import warnings
from typing import Any, Dict, Iterable, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

import click

from bytescheduler._process import stdout
from bytescheduler._process.numbers import Count
from bytescheduler._process.replaced import is_stdout, replaced
from bytescheduler._process.say import plain, say
from bytescheduler._timeline import plot as _timeline_plot
from bytescheduler._timeline import steps as _timeline_steps
from bytescheduler._timeline.carriers import Carriers
from bytescheduler._timeline.clocks import FIRST_SERVER_PID
from bytescheduler._timeline.files import (
    KEY_NAME,
    OWN_KEYS,
    Event,
    TimelineError,
    TimelineWarning,
    is_bookkeeping,
    merge,
    text_of,
    write,
)
from bytescheduler._timeline.steps import CRITICAL, PROXY, Interval, Step, Where, union

__all__ = ["TimelineError", "TimelineWarning", "merge", "summary", "table", "timeline", "write"]

_MOST_TENSORS = 10
_MOST_STEPS = 5


def _covered(intervals: Iterable[Interval]) -> float:
    """Return how long at least one of the intervals lasts."""
    return math.fsum(end - begin for begin, end in union(intervals))


def _row(place: Where, step: Step, wait: Optional[Interval]) -> Dict[str, Any]:
    tensors = list(step.values())
    return {
        "rank": place[0],
        "step": place[1],
        "seconds": max(t.end for t in tensors) - min(t.begin for t in tensors),
        "queued_s": _covered(span for t in tensors for span in t.queued),
        "wire_s": _covered(span for t in tensors for span in t.sent),
        "waiting_s": _covered(span for t in tensors for span in t.waited),
        "lost_s": None if wait is None else wait[1] - wait[0],
        "bytes": sum(t.bytes for t in tensors),
    }


class _Servers:
    """The servers' part of a summary: how long sums took, and which worker came last."""

    def __init__(self) -> None:
        self.sums: Dict[int, List[float]] = {}
        self.late: Dict[int, List[float]] = {}

    def add(self, event: Event) -> None:
        seconds = event["dur"] / 1e6
        if event["cat"] == "sum":
            self.sums.setdefault(event["pid"] - FIRST_SERVER_PID, []).append(seconds)
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


_FIGURES = ("seconds", "queued_s", "wire_s", "waiting_s", "lost_s", "bytes")


def summary(events: Iterable[Event]) -> Dict[str, Any]:
    """Return the parts of the time of each step, as numbers that can be written as JSON.

    A step is a round: all that a worker sends between two uses of the same key.  Round 0, the first
    values of keys, is left out.  Steps are without keys that come more often or more seldom than
    others.

    Returns
    -------
    dict
        ``steps`` has for each rank and step the seconds from its first gradient to its last sum,
        and the bytes sent.  Three more numbers are seconds in which at least one partition was
        queued, on the wire (sent, not acknowledged), or then waited for its sum.  It mostly
        waits for other workers.  The lost seconds are those from the last gradient to the sum of
        the critical tensor, which the next forward pass needs first.  They are None if not known,
        as in the first step.

        ``ranks`` has the medians over the steps of each rank.  ``tensors`` has the ten with the
        longest mean wait for other workers, and ``internal`` the same for keys that are no tensors
        of the script.  ``carriers`` has the bytes that each rank pushed and pulled by each carrier:
        ``tcp``, ``shm`` or ``rdma``.

        From servers' files: ``servers`` has each server's number of sums, and its mean seconds from
        the last push of a sum to the sum.  ``late`` has each worker that came last, with the number
        of such sums, and the seconds that the first worker waited for it.
    """
    return _Job(events).summary()


class _Job:
    """The steps and sums of a job's workers and servers."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._rounds: Dict[Where, Step] = {}
        self._sizes: Dict[int, int] = {}
        self.names = dict(OWN_KEYS)
        self._servers = _Servers()
        self._carriers = Carriers()
        critical: _timeline_steps.CriticalWaits = {}
        for event in events:
            if event.get("name") == KEY_NAME:
                self.names[event["args"]["key"]] = event["args"]["name"]
            if event.get("ph") != "X" or event["args"]["round"] == 0:
                continue
            if event["cat"] == CRITICAL:
                _timeline_steps.add_critical(critical, event)
            if event["cat"] in (CRITICAL, PROXY):
                continue
            if event["cat"] not in _timeline_steps.OF_WORKERS:
                self._servers.add(event)
                continue
            _timeline_steps.add(self._rounds, event)
            self._carriers.add(event)
            if event["cat"] == "tensor":
                self._sizes[event["args"]["key"]] = event["args"]["bytes"]
        self.steps = _timeline_steps.in_step(self._rounds)
        self.critical = _timeline_steps.of_steps(critical, self.steps)
        self.rows = [self.row(place) for place in sorted(self.steps)]

    def drawn(self, place: Where) -> Step:
        """Return the tensors of a step, and what workers agreed on meanwhile."""
        step = self.steps[place]
        begin = min(tensor.begin for tensor in step.values())
        end = max(tensor.end for tensor in step.values())
        internal = {
            key: tensor
            for (rank, _), tensors in self._rounds.items()
            for key, tensor in tensors.items()
            if rank == place[0] and begin <= tensor.begin <= end and is_bookkeeping(key)
        }
        return {**step, **internal}

    def row(self, place: Where) -> Dict[str, Any]:
        return _row(place, self.steps[place], self.critical.get(place))

    def summary(self) -> Dict[str, Any]:
        ranks = sorted({row["rank"] for row in self.rows})
        waits = [
            {"name": self.names.get(row["key"]), **row}
            for row in _longest_waits(self._rounds, self._sizes)
        ]
        return {
            "steps": self.rows,
            "ranks": [_medians(rank, self.rows) for rank in ranks],
            "tensors": [row for row in waits if not is_bookkeeping(row["key"])][:_MOST_TENSORS],
            "internal": [row for row in waits if is_bookkeeping(row["key"])],
            "carriers": self._carriers.rows(),
            **self._servers.rows(),
        }


def _medians(rank: int, rows: List[Dict[str, Any]]) -> Dict[str, Any]:
    rank_rows = [row for row in rows if row["rank"] == rank]
    figures = {name: [row[name] for row in rank_rows if row[name] is not None] for name in _FIGURES}
    medians = {name: statistics.median(of) if of else None for name, of in figures.items()}
    return {"rank": rank, "steps": len(rank_rows), **medians}


def _longest_waits(steps: Dict[Where, Step], sizes: Dict[int, int]) -> List[Dict[str, Any]]:
    waits: Dict[int, List[Tuple[float, int, int]]] = {}
    for (rank, number), step in steps.items():
        for key, tensor in step.items():
            if not math.isnan(tensor.last_wait):
                waits.setdefault(key, []).append((tensor.last_wait, rank, number))
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
    return rows


def _ms(seconds: Optional[float]) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


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
    head = ["sent", "ms", "queued", "on the wire", "waiting for others", "lost"]

    def cells(row: Dict[str, Any]) -> List[str]:
        return [_size(row["bytes"]), *(_ms(row[name]) for name in _FIGURES[:-1])]

    ranks = [[str(row["rank"]), str(row["steps"]), *cells(row)] for row in of["ranks"]]
    slowest = sorted(of["steps"], key=lambda row: -row["seconds"])[:_MOST_STEPS]
    steps = [[str(row["rank"]), str(row["step"]), *cells(row)] for row in slowest]
    tensors, internal = (
        [
            [
                plain(row["name"] or str(row["key"])),
                _size(row["bytes"]),
                _ms(row["wait_mean_s"]),
                _ms(row["wait_max_s"]),
                str(row["rank_of_max"]),
                str(row["step_of_max"]),
            ]
            for row in of[which]
        ]
        for which in ("tensors", "internal")
    )
    wait_head = ["key", "size", "mean ms", "longest", "on rank", "in step"]
    blocks = [
        "A step, medians in milliseconds:\n" + _aligned_columns([["rank", "steps", *head], *ranks]),
        "The longest steps:\n" + _aligned_columns([["rank", "step", *head], *steps]),
        "The tensors that wait longest for other workers:\n"
        + _aligned_columns([wait_head, *tensors]),
    ]
    if internal:
        blocks.append(
            "The same for what workers agree on by themselves:\n"
            + _aligned_columns([wait_head, *internal])
        )
    return blocks


def table(of: Dict[str, Any]) -> str:
    """Return what `summary` returned, for people."""
    blocks = _worker_blocks(of) if of["steps"] else []
    if of["carriers"]:
        carried = [
            [
                str(row["rank"]),
                plain(row["carrier"]),
                _size(row["pushed_bytes"]),
                _size(row["pulled_bytes"]),
            ]
            for row in of["carriers"]
        ]
        blocks.append(
            "The carriers of all bytes:\n"
            + _aligned_columns([["rank", "carrier", "pushed", "pulled"], *carried])
        )
    if of["late"]:
        late = [[str(row["rank"]), str(row["sums"]), _ms(row["seconds"])] for row in of["late"]]
        blocks.append(
            "Workers that came last, and for how long the first one waited:\n"
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


class _Picture(NamedTuple):
    """The picture that `--plot` asks for."""

    path: str
    rank: Optional[int]
    step: Optional[int]


def _check_places(paths: Sequence[str], *places: Optional[str]) -> None:
    """Refuse to write two things, or one that is read, to one place."""
    targets = [place for place in places if place is not None]
    for place in targets:
        if os.path.isfile(place) and any(os.path.samefile(place, path) for path in paths):
            raise TimelineError(f"{place} is one of the files to read")
    if len({os.path.realpath(place) for place in targets}) < len(targets):
        raise TimelineError(
            f"{targets[0]}: both the timeline and the picture are to be written there"
        )


def _to_draw(rows: List[Dict[str, Any]], picture: _Picture) -> Where:
    """Return the step that was asked for; else of that rank one that took as long as most."""
    ranks = sorted({row["rank"] for row in rows})
    if not ranks:
        raise TimelineError("there is no step to draw: these files are of no worker that trained")
    rank = ranks[0] if picture.rank is None else picture.rank
    rank_rows = sorted((row for row in rows if row["rank"] == rank), key=lambda row: row["seconds"])
    if not rank_rows:
        other_ranks = ", ".join(str(other_ranks) for other_ranks in ranks)
        raise TimelineError(
            f"there is no step of rank {rank} in these files, only of {other_ranks}"
        )
    if picture.step is None:
        return rank, rank_rows[(len(rank_rows) - 1) // 2]["step"]
    if all(row["step"] != picture.step for row in rank_rows):
        last = max(row["step"] for row in rank_rows)
        raise TimelineError(f"rank {rank} made no step {picture.step}: its last is {last}")
    return rank, picture.step


def _drawn(picture: _Picture, kind: str, job: _Job) -> bytes:
    rank, number = _to_draw(job.rows, picture)
    row = job.row((rank, number))
    title = f"worker {rank}, step {number}: {_ms(row['seconds'])} ms"
    wait = job.critical.get((rank, number))
    return _timeline_plot.draw(job.drawn((rank, number)), wait, job.names, title, kind)


def _put(path: str, chunks: Iterable[bytes]) -> None:
    with replaced(path) as file:
        for chunk in chunks:
            file.write(chunk)


def _run(
    paths: Sequence[str], as_json: bool, out: Optional[str], picture: Optional[_Picture]
) -> None:
    """Read everything, then write; what is refused costs nothing that is there."""
    events = merge(paths)
    places = [out, None if picture is None else picture.path]
    _check_places(paths, *places)
    taken = any(place is not None and is_stdout(place) for place in places)
    if taken and as_json:
        raise TimelineError("stdout takes the summary (--json) or what is written there, not both")
    kind = "" if picture is None else _timeline_plot.kind_of(picture.path)
    job = _Job(events)
    job_summary = job.summary()
    drawn = b"" if picture is None else _drawn(picture, kind, job)
    if out is not None:
        _put(out, (text.encode() for text in text_of(merge(paths))))
    if picture is not None:
        _put(picture.path, [drawn])
    if not taken:
        click.echo(json.dumps(job_summary, indent=2) if as_json else table(job_summary), nl=as_json)


def _refuse(reason: str) -> NoReturn:
    say(plain(f"bytescheduler: {reason}"))
    sys.exit(2)


@click.command("timeline", short_help="Sum up where the time of a job's steps went.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option(
    "-o", "--out", type=click.Path(), help="Write one timeline of all files, clocks aligned."
)
@click.option(
    "--plot",
    type=click.Path(),
    help="Draw a step, tensor by tensor, as .svg, .png or .pdf; needs bytescheduler[plot].",
)
@click.option("--rank", type=Count(0, 65535), help="Whose step to draw.  [the first there is]")
@click.option("--step", type=Count(1, 10**9), help="Which step to draw.  [the median]")
def timeline(
    files: Tuple[str, ...],
    as_json: bool,
    out: Optional[str],
    plot: Optional[str],
    rank: Optional[int],
    step: Optional[int],
) -> None:
    """Sum up the timelines of a job's workers and servers (BYTESCHEDULER_TIMELINE)."""
    if plot is None and (rank is not None or step is not None):
        raise click.UsageError("--rank and --step say what to draw: --plot FILE is missing")
    picture = None if plot is None else _Picture(plot, rank, step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TimelineWarning)
        try:
            _run(files, as_json, out, picture)
        except TimelineError as error:
            _refuse(str(error))
        except OSError as error:
            file_name = "" if error.filename is None else f"{error.filename or repr('')}: "
            _refuse(f"{file_name}{error.strerror}")
    ours = (w.message for w in caught if isinstance(w.message, TimelineWarning))
    for text in dict.fromkeys(map(str, ours)):
        say(plain(f"bytescheduler: {text}"))


if __name__ == "__main__":
    stdout.run(timeline, None, "bytescheduler timeline")
