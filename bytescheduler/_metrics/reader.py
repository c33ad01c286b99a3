"""Reads the metrics of the processes of a job, and makes rates of two readings."""

import concurrent.futures
import http.client
import socket
import time
import urllib.error
import urllib.request
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from bytescheduler._metrics import table
from bytescheduler._metrics.addresses import MOST_PORTS

__all__ = ["Node", "Place", "read", "report", "scan"]

Place = Tuple[str, int]  # host, port
# Metrics by the engine's name and the rank of the peer.
Values = Dict[Tuple[str, Optional[int]], float]

_PATIENCE_S = 2.0  # for one response
_SILENT_S = 60.0  # a process without a response counts as busy until then
_MOST_BYTES = 16 << 20
_AT_ONCE = 32


class Node(NamedTuple):
    """The metrics of one process, and when they were read."""

    role: str
    rank: Optional[int]
    answers: bool  # True if its engine responded
    when: float  # seconds of a monotonic clock
    values: Values

    def get(self, name: str, of: Optional[int] = None) -> float:
        """Return a metric; 0 if there is none."""
        return self.values.get((name, of), 0.0)

    def total(self, name: str) -> float:
        """Return a metric added up over peers."""
        return sum(value for (metric, _), value in self.values.items() if metric == name)

    def peers(self, name: str) -> List[int]:
        """Return the ranks of the peers that have this metric."""
        return sorted(of for metric, of in self.values if metric == name and of is not None)


def _rank(text: str) -> Optional[int]:
    return int(text) if text.isdecimal() else None


def parse(text: str, when: float) -> Optional[Node]:
    """Return the metrics that `text` has; None if it comes from no process of ours.

    Raises
    ------
    ValueError
        It is not the format of Prometheus.
    """
    from prometheus_client.parser import text_string_to_metric_families  # takes a while

    info: Dict[str, str] = {}
    answers = False
    try:
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    except (IndexError, KeyError, ValueError) as error:  # the parser raises them for odd text
        raise ValueError(f"not the format of Prometheus: {error}".rstrip(": ")) from error
    for sample in samples:
        if sample.name == table.INFO:
            info = sample.labels
        elif sample.name == table.ANSWERS:
            answers = sample.value > 0
    role = info.get("role", "")
    if not role:
        return None
    values: Values = {}
    for row in table.ROWS:
        if row.role != role:
            continue
        for sample in samples:
            if sample.name == row.name:
                peer = None if row.of is None else _rank(sample.labels.get(row.of, ""))
                values[row.metric, peer] = sample.value
    return Node(role, _rank(info.get("rank", "")), answers, when, values)


def read(place: Place) -> Optional[Node]:
    """Return the metrics of the process at `place`; None if none of ours is there.  Blocks shortly.

    Raises
    ------
    socket.timeout
        There was no response in time, nor a refusal.
    """
    host, port = place
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_PATIENCE_S) as response:
            text = response.read(_MOST_BYTES).decode(errors="replace")
        return parse(text, time.monotonic())
    except socket.timeout:
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, socket.timeout):  # while connecting
            raise error.reason from None
        return None
    except (OSError, ValueError, http.client.HTTPException):
        return None


def ports(place: Place) -> List[Place]:
    """Return where processes may be that share a place to begin at."""
    host, first = place
    return [(host, port) for port in range(first, min(first + MOST_PORTS, 65536))]


def _look(place: Place, before: Optional[Node]) -> Optional[Node]:
    try:
        return read(place)
    except socket.timeout:
        if before is None or time.monotonic() - before.when > _SILENT_S:
            return None
        return before._replace(answers=False)


def scan(places: Iterable[Place], before: Mapping[Place, Node]) -> Dict[Place, Node]:
    """Return what the processes at `places` show.  Blocks shortly.

    One that does not answer, but was there `before`, within a minute, is busy: it shows the same.
    """
    places = list(dict.fromkeys(places))
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        looks = zip(places, pool.map(lambda place: _look(place, before.get(place)), places))
        return {place: node for place, node in looks if node is not None}


class _Pair(NamedTuple):
    """Two readings of one process."""

    before: Node
    now: Node

    def rate(self, name: str) -> float:
        """Return how much a counter grew in a second, over all peers."""
        return self.growth(name) / max(self.now.when - self.before.when, 1e-9)

    def growth(self, name: str, of: Optional[int] = None) -> float:
        if of is None:
            return max(0.0, self.now.total(name) - self.before.total(name))
        return max(0.0, self.now.get(name, of) - self.before.get(name, of))


def _worker(pair: _Pair) -> Dict[str, object]:
    now = pair.now
    return {
        "rank": now.rank,
        "answers": now.answers,
        "failed": now.get("failed") > 0,
        "steps_per_s": pair.rate("steps_total"),
        "step_s": now.get("step_seconds"),
        "pushed_bytes_per_s": pair.rate("pushed_bytes_total"),
        "pulled_bytes_per_s": pair.rate("pulled_bytes_total"),
        "queued_partitions": int(now.total("queued_partitions")),
        "queued_bytes": int(now.total("queued_bytes")),
        "in_flight_bytes": int(now.total("in_flight_bytes")),
        "credit_bytes": int(now.get("credit_bytes")),
        "repeats_per_s": pair.rate("repeats_total"),
    }


def _server(pair: _Pair) -> Dict[str, object]:
    now = pair.now
    return {
        "rank": now.rank,
        "answers": now.answers,
        "failed": now.get("failed") > 0,
        "pushed_bytes_per_s": pair.rate("pushed_bytes_total"),
        "pulled_bytes_per_s": pair.rate("pulled_bytes_total"),
        "rounds_per_s": pair.rate("rounds_total"),
        "open_rounds": int(now.get("open_rounds")),
        "partitions": int(now.get("partitions")),
        "value_bytes": int(now.get("value_bytes")),
        "held_bytes": int(now.get("held_bytes")),
        "refused_per_s": pair.rate("refused_total"),
    }


def _stragglers(servers: List[_Pair]) -> List[Dict[str, object]]:
    """Return the workers that servers wait for, the slowest first."""
    waited: Dict[int, float] = {}
    last: Dict[int, float] = {}
    awaited: Dict[int, int] = {}
    for pair in servers:
        for rank in pair.now.peers("waited_seconds_total"):
            waited[rank] = waited.get(rank, 0.0) + pair.growth("waited_seconds_total", rank)
            last[rank] = last.get(rank, 0.0) + pair.growth("came_last_total", rank)
            awaited[rank] = awaited.get(rank, 0) + int(pair.now.get("awaited_rounds", rank))
    all_waited = sum(waited.values())
    rows: List[Dict[str, object]] = [
        {
            "worker": rank,
            "waited_share": waited[rank] / all_waited if all_waited > 0 else 0.0,
            "wait_s": waited[rank] / last[rank] if last[rank] > 0 else 0.0,
            "awaited_rounds": awaited[rank],
        }
        for rank in sorted(waited, key=lambda rank: (-waited[rank], -awaited[rank], rank))
    ]
    return rows


def _scheduler(pair: _Pair) -> Dict[str, object]:
    now = pair.now
    silent = sorted(
        (-now.get(f"{role}_silent_seconds", rank), f"{role} {rank}")
        for role in ("worker", "server")
        for rank in now.peers(f"{role}_silent_seconds")
    )
    return {
        "answers": now.answers,
        "workers": int(now.get("workers")),
        "servers": int(now.get("servers")),
        "silent": [{"node": name, "silent_s": -seconds} for seconds, name in silent],
    }


def report(before: Dict[Place, Node], now: Dict[Place, Node]) -> Dict[str, List[Dict[str, object]]]:
    """Return the work of a job between two readings, of the processes that are in both.

    `workers` and `servers` are ordered by rank.  `stragglers` has the workers that servers wait
    for.  `schedulers` has the nodes and the seconds since the scheduler node last heard each, the
    longest first.
    """
    both = [_Pair(before[place], now[place]) for place in now if place in before]
    by_role: Dict[str, List[_Pair]] = {"worker": [], "server": [], "scheduler": []}
    for pair in sorted(both, key=lambda pair: -1 if pair.now.rank is None else pair.now.rank):
        by_role.get(pair.now.role, []).append(pair)
    return {
        "workers": [_worker(pair) for pair in by_role["worker"]],
        "servers": [_server(pair) for pair in by_role["server"]],
        "stragglers": _stragglers(by_role["server"]),
        "schedulers": [_scheduler(pair) for pair in by_role["scheduler"]],
    }
