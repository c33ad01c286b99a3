"""Timelines as files: read line by line, checked, put on a common clock, written."""

import collections
import json
import os
import re
import warnings
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    NamedTuple,
    Optional,
    Sequence,
    TextIO,
    Tuple,
    Union,
)

from bytescheduler._native import FIRST_BOOKKEEPING_KEY
from bytescheduler._process.say import counted
from bytescheduler._timeline import clocks as _timeline_clocks
from bytescheduler.errors import ConfigError

__all__ = [
    "FRAMEWORK",
    "KEY_NAME",
    "OWN_KEYS",
    "Event",
    "TimelineError",
    "TimelineWarning",
    "is_bookkeeping",
    "merge",
    "text_of",
    "write",
]

Event = Dict[str, Any]
Path = Union[str, "os.PathLike[str]"]

_VERSION = 1
_ABOUT = "bytescheduler"
KEY_NAME = "bytescheduler_key"
FRAMEWORK = "bytescheduler_framework"
# Keys of the engine's own, by which worker 0 tells an order (src/worker/measured_order.h).
OWN_KEYS = {(1 << 64) - 2: "size of the measured order", (1 << 64) - 1: "measured order"}
_END = "bytescheduler_end"
# The numbers that an event of a phase must have, and the arguments of a span.
_NUMBERS = {"X": ("ts", "dur"), "C": ("ts",), "i": ("ts",), "M": ()}
_COUNTS = {
    "tensor": ("key", "round", "bytes"),
    "proxy": ("key", "round", "bytes"),
    "front": ("key", "round", "bytes"),
    "queue": ("key", "part", "round", "bytes", "server"),
    "push": ("key", "part", "round", "bytes", "server"),
    "pull": ("key", "part", "round", "bytes", "server"),
    "peers": ("key", "part", "round", "bytes", "last"),
    "sum": ("key", "part", "round", "bytes"),
}


def is_bookkeeping(key: int) -> bool:
    """Return whether a key is no tensor of the script's, but of what workers agree on."""
    return key >= FIRST_BOOKKEEPING_KEY


class TimelineError(ConfigError):
    """A file is no timeline of ours, or belongs to another job."""


class TimelineWarning(UserWarning):
    """Something is missing in a timeline, which is of use all the same."""


class _Place(NamedTuple):
    path: str
    line: int

    def wrong(self, fault: str) -> TimelineError:
        return TimelineError(f"{self.path}, line {self.line}: {fault}")


def _warn(text: str) -> None:
    warnings.warn(text, TimelineWarning, stacklevel=3)


def _is_number(value: object) -> bool:
    # No sane time is larger, in microseconds; NaN compares as not smaller either.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def _check(event: object, place: _Place) -> Event:
    if not isinstance(event, dict):
        raise place.wrong("not an event")
    phase, args = str(event.get("ph")), event.get("args")
    if phase not in _NUMBERS or not isinstance(args, dict) or not _is_count(event.get("pid")):
        raise place.wrong("not an event of a timeline of ours")
    for name in _NUMBERS[phase]:
        if not _is_number(event.get(name)):
            raise place.wrong(f"{name!r} is not a number")
    if event.get("name") == KEY_NAME and not (
        phase == "M" and _is_count(args.get("key")) and isinstance(args.get("name"), str)
    ):
        raise place.wrong("not the name of a key")
    if event.get("name") == FRAMEWORK and not (
        phase == "M" and isinstance(args.get("framework"), str)
    ):
        raise place.wrong("not the name of a framework")
    if phase == "X":
        if event["dur"] < 0:
            raise place.wrong("'dur' is negative")
        category = str(event.get("cat"))
        if category not in _COUNTS:
            raise place.wrong(f"a span of an unknown kind, {category!r}")
        for name in _COUNTS[category]:
            if not _is_count(args.get(name)):
                raise place.wrong(f"{name!r} is not a number from 0")
        if not _is_number(args.get("priority", 0)):
            raise place.wrong("'priority' is not a number")
        for name in ("carrier", "coding"):
            if not isinstance(args.get(name, ""), str):
                raise place.wrong(f"{name!r} is not a text")
    return event


def _lines(path: str, warn: Callable[[str], None]) -> Iterator[Tuple[_Place, Event]]:
    """Yield the events of a file; of a file that is cut off, its whole events."""
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
        warn(f"{path} has no end: its process was killed or still runs, or its disk was full")


def _not_ours(path: str) -> TimelineError:
    return TimelineError(
        f"{path} is no timeline of bytescheduler (BYTESCHEDULER_TIMELINE writes them)"
    )


def _check_about(event: Event, place: _Place) -> None:
    args = event["args"]
    has_timeline = args.get("role") in ("worker", "server")
    if not has_timeline or not _is_count(args.get("version")) or not _is_count(args.get("rank")):
        raise _not_ours(place.path)
    if args["version"] > _VERSION:
        raise TimelineError(
            f"{place.path} has version {args['version']} of the format, and this is a program for "
            f"version {_VERSION}: read it with the bytescheduler that wrote it"
        )
    for name in ("start_ns", "num_workers", "num_servers"):
        if not _is_count(args.get(name)):
            raise place.wrong(f"{name!r} is not a number from 0")
    if not isinstance(args.get("job", ""), str):
        raise place.wrong("'job' is no text")


class _Node(NamedTuple):
    """A worker or a server, and its file."""

    path: str
    event: Event  # its description of itself

    @property
    def name(self) -> str:
        return "{role} {rank}".format(**self.event["args"])

    @property
    def start_ns(self) -> int:
        return int(self.event["args"]["start_ns"])

    @property
    def clock(self) -> _timeline_clocks.Clock:
        return _timeline_clocks.Clock(str(self.event["args"].get("host")), self.start_ns)

    @property
    def job(self) -> str:
        about = self.event["args"]
        workers, servers = about["num_workers"], about["num_servers"]
        return f"{counted(workers, 'worker')} and {counted(servers, 'server')}"

    @property
    def job_number(self) -> str:
        """The number that no other job has; empty if it is not known, as with a wrapped store."""
        return str(self.event["args"].get("job", ""))


def _nodes_of(path: str) -> Dict[int, _Node]:
    """Return the nodes that wrote the file, by pid; a merged file has several."""
    nodes: Dict[int, _Node] = {}
    for place, event in _lines(path, lambda text: None):  # told when all events are read
        if event.get("name") != _ABOUT:
            break
        _check_about(event, place)
        nodes[event["pid"]] = _Node(path, event)
    if not nodes:
        raise _not_ours(path)
    if len(nodes) == 1:
        _check_name(*nodes.values())
    return nodes


def _check_name(node: _Node) -> None:
    """Refuse a file whose name, as the engine makes them, is the name of another node."""
    named = re.search(r"-([rs])(\d+)(\.[^.]*)?$", os.path.basename(node.path))
    if named is None:
        return
    says = f"{'worker' if named[1] == 'r' else 'server'} {int(named[2])}"
    if says != node.name:
        raise TimelineError(f"{node.path} is of {node.name}, and its name says {says}")


def _all_nodes(paths: Sequence[str]) -> Dict[int, _Node]:
    nodes: Dict[int, _Node] = {}
    for path in paths:
        for pid, node in _nodes_of(path).items():
            if pid in nodes:
                raise TimelineError(f"{nodes[pid].path} and {path} are both of {node.name}")
            nodes[pid] = node
    jobs = {node.job: node.path for node in nodes.values()}
    if len(jobs) > 1:
        described = ", ".join(f"{path} of {job}" for job, path in jobs.items())
        raise TimelineError(f"these are not of one job: {described}")
    _check_numbers(nodes.values())
    return nodes


def _check_numbers(nodes: Iterable[_Node]) -> None:
    """Refuse files that an older job of as many nodes left behind."""
    files: Dict[str, Dict[str, None]] = {}
    for node in nodes:
        if node.job_number:
            files.setdefault(node.job_number, {})[node.path] = None
    if len(files) > 1:
        wrote = "; ".join(f"job {job} wrote {', '.join(paths)}" for job, paths in files.items())
        raise TimelineError(f"these are not of one run: {wrote}")


def merge(paths: Iterable[Path]) -> Iterator[Event]:
    """Yield the events of several workers and servers of a job, on a common clock.

    The clocks are aligned by the wall clocks of the hosts; with servers' files by the events
    that both sides saw (see `clocks`), which corrects wall clocks that cannot be right.  Times
    count from the start of the node that started first.  Spans of servers have the names that
    workers give their keys.  A file is read while its events are taken, so files may be larger
    than memory.

    Parameters
    ----------
    paths : iterable of paths
        Files that BYTESCHEDULER_TIMELINE or `write` made, each node in a single file.

    Raises
    ------
    TimelineError
        A file is no timeline, or is damaged otherwise than at its end; two are of the same node,
        or of different jobs; a file is a pipe.
    OSError
        A file cannot be read.

    Warns
    -----
    TimelineWarning
        A file is cut off, which costs its last event; or its process could not write all events.
    """
    names = [os.fspath(path) for path in paths]
    for name in names:
        if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
            raise TimelineError(
                f"{name} is no file: timelines are read more than once, so a pipe or a device will "
                "not do; write it to a file first"
            )
    nodes = _all_nodes(names)
    return _aligned(names, nodes)


class _Ahead(NamedTuple):
    """Facts from the whole of all files, which the first event needs."""

    starts: Dict[int, int]  # by pid: when its time 0 was, by the common clock
    names: Dict[int, str]  # the workers' names of keys, which servers do not know


def _look_ahead(paths: Sequence[str], nodes: Dict[int, _Node]) -> _Ahead:
    """Read the files once, or not at all for a single host without servers."""
    names = dict(OWN_KEYS)

    def events() -> Iterator[Event]:
        for path in paths:
            for _, event in _lines(path, lambda text: None):  # told when all is read again
                if event.get("name") == KEY_NAME:
                    names[event["args"]["key"]] = event["args"]["name"]
                yield event

    clocks = {pid: node.clock for pid, node in nodes.items()}
    ahead = dict.fromkeys(nodes, 0)
    if len({clock.host for clock in clocks.values()}) > 1:
        ahead = _timeline_clocks.errors(clocks, events())
    elif any(pid >= _timeline_clocks.FIRST_SERVER_PID for pid in nodes):
        collections.deque(events(), maxlen=0)
    return _Ahead({pid: node.start_ns - ahead[pid] for pid, node in nodes.items()}, names)


def _aligned(paths: Sequence[str], nodes: Dict[int, _Node]) -> Iterator[Event]:
    starts, names = _look_ahead(paths, nodes)
    zero_ns = min(starts.values())
    for node in nodes.values():
        yield {**node.event, "args": {**node.event["args"], "start_ns": zero_ns}}
    for path in paths:
        for place, event in _lines(path, _warn):
            if event.get("name") == _ABOUT:
                continue
            if event["pid"] not in nodes:
                raise place.wrong(f"pid {event['pid']} told nothing about itself")
            if event.get("name") == _END and event["args"].get("lost"):
                lost = counted(event["args"]["lost"], "event")
                _warn(f"{path} lacks {lost} that could not be written")
            if "ts" in event:
                shift_us = (starts[event["pid"]] - zero_ns) / 1000
                event["ts"] = round(event["ts"] + shift_us, 3)
            if event.get("ph") == "X":
                key = event["args"]["key"]
                of_server = event["pid"] >= _timeline_clocks.FIRST_SERVER_PID
                name = names.get(key) if of_server else OWN_KEYS.get(key)
                if name is not None:
                    event["name"] = str(event.get("name")).replace(f"key {key}", name, 1)
            yield event


def text_of(events: Iterable[Event]) -> Iterator[str]:
    """Yield the bytes of a timeline, an event at a time."""
    separator = "[\n"
    for event in events:
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    yield "\n]\n"


def write(events: Iterable[Event], file: TextIO) -> None:
    """Write events as a timeline, an event a line."""
    file.writelines(text_of(events))
