"""The differences of hosts' clocks, from the times of workers and servers for the same partitions.

A push arrives at its server after its worker has sent it and before the worker has the
acknowledgement.  So each partition bounds the difference of two clocks from both sides.  The
quickest partitions give the best bounds, as in NTP (Mills, RFC 5905, section 8).
"""

import math
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Tuple

__all__ = ["Clock", "FIRST_SERVER_PID", "errors"]

FIRST_SERVER_PID = 20001
# Spans of each node: enough to meet a quick one, and little memory.
_MOST_SPANS = 10_000
# The end of a push of a tensor up to here does not say that it has arrived; that of the pull does.
_TOGETHER_BYTES = 16 << 10

_Event = Dict[str, Any]
_Pair = Tuple[int, int]  # a worker's pid and a server's
_What = Tuple[int, int, int]  # key, part, round


class Clock(NamedTuple):
    """A node's clock: where it is, and what its wall clock said at the node's time 0."""

    host: str
    start_ns: int


class _Bounds:
    """Between which the difference of two clocks is, in nanoseconds."""

    def __init__(self) -> None:
        self.low = -math.inf
        self.high = math.inf

    @property
    def width(self) -> float:
        # Bounds that exclude each other: a clock was set meanwhile, or one runs faster.
        return self.high - self.low if self.low <= self.high else math.inf

    @property
    def difference(self) -> float:
        # The wall clocks count unless the bounds exclude them; bounds that exclude each other prove
        # nothing.
        believed = self.low <= 0 <= self.high or self.low > self.high
        return 0.0 if believed else (self.low + self.high) / 2


def errors(clocks: Mapping[int, Clock], events: Iterable[_Event]) -> Dict[int, int]:
    """Return by how many nanoseconds each node's wall clock is ahead of that of the first node.

    Clocks of one host are one clock.  Where nothing is known, as of nodes that share no partition
    with another, or contradicts the wall clocks, these are believed: 0.  So they are where the
    partitions contradict each other, as clocks were set meanwhile or run at different speeds.

    Parameters
    ----------
    clocks : dict
        By pid: worker r has r + 1, server r FIRST_SERVER_PID + r.
    events : iterable of dict
        Of their timelines, in any order; times as in the files.
    """
    bounds = _bounds(clocks, events)
    error_of_node: Dict[int, float] = {}
    _find(min(clocks), 0.0, clocks, error_of_node)
    while True:
        ways = [
            (both.width, pair)
            for pair, both in bounds.items()
            if (pair[0] in error_of_node) != (pair[1] in error_of_node)
        ]
        if not ways:
            return {pid: round(error_of_node.get(pid, 0.0)) for pid in clocks}
        worker, server = pair = min(ways)[1]
        if server in error_of_node:
            _find(worker, error_of_node[server] + bounds[pair].difference, clocks, error_of_node)
        else:
            _find(server, error_of_node[worker] - bounds[pair].difference, clocks, error_of_node)


def _find(
    pid: int, error: float, clocks: Mapping[int, Clock], error_of_node: Dict[int, float]
) -> None:
    for host_pid, clock in clocks.items():
        if clock.host == clocks[pid].host:
            error_of_node[host_pid] = error


def _bounds(clocks: Mapping[int, Clock], events: Iterable[_Event]) -> Dict[_Pair, _Bounds]:
    """Return for each worker and server how far the worker's clock may be ahead."""
    sent: Dict[_Pair, Dict[_What, Tuple[float, float]]] = {}
    summed: Dict[_Pair, Dict[_What, float]] = {}
    came: Dict[_Pair, Dict[_What, float]] = {}
    counts: Dict[Tuple[int, str], int] = {}
    sizes: Dict[_What, int] = {}  # bytes by a worker's pid, key and round
    for event in events:
        pid = event["pid"]
        category = event.get("cat", "")
        if event.get("ph") != "X" or category not in ("push", "pull", "peers"):
            continue
        counts[pid, category] = counts.get((pid, category), 0) + 1
        if category == "push":
            tensor = (pid, event["args"]["key"], event["args"]["round"])
            sizes[tensor] = sizes.get(tensor, 0) + event["args"]["bytes"]
        if pid not in clocks or counts[pid, category] > _MOST_SPANS:
            continue
        args = event["args"]
        partition = (args["key"], args["part"], args["round"])
        begin = clocks[pid].start_ns + event["ts"] * 1e3
        end = begin + event["dur"] * 1e3
        if category == "peers":
            came.setdefault((args["last"] + 1, pid), {})[partition] = end
            continue
        pair = (pid, FIRST_SERVER_PID + args["server"])
        if category == "push":
            sent.setdefault(pair, {})[partition] = (begin, end)
        else:
            summed.setdefault(pair, {})[partition] = end
    bounds: Dict[_Pair, _Bounds] = {}
    for pair in sent.keys() & came.keys():
        for partition in sent[pair].keys() & came[pair].keys():
            both = bounds.setdefault(pair, _Bounds())
            both.low = max(both.low, sent[pair][partition][0] - came[pair][partition])
            by = summed.get(pair, {}).get(partition, math.inf)
            if sizes[pair[0], partition[0], partition[2]] > _TOGETHER_BYTES:
                by = min(by, sent[pair][partition][1])
            both.high = min(both.high, by - came[pair][partition])
    return bounds
