"""Clocks of hosts that are wrong, found by what workers and servers saw of the same partitions."""

import json
import pathlib
from typing import Any, Dict, List

from bytescheduler import timeline
from bytescheduler._timeline import clocks

Event = Dict[str, Any]
MS = 1_000_000
SERVER = clocks.FIRST_SERVER_PID


def push(worker: int, sent_ms: float, acknowledged_ms: float, key: int, server: int = 0) -> Event:
    args = {"key": key, "part": 0, "round": 1, "bytes": 1 << 20, "server": server}
    times = {"ts": sent_ms * 1e3, "dur": (acknowledged_ms - sent_ms) * 1e3}
    return {
        "name": "p",
        "cat": "push",
        "ph": "X",
        "pid": worker + 1,
        "tid": 1,
        **times,
        "args": args,
    }


def came(last: int, at_ms: float, key: int, server: int = 0) -> Event:
    args = {"key": key, "part": 0, "round": 1, "bytes": 10, "last": last}
    times = {"ts": (at_ms - 1) * 1e3, "dur": 1e3}
    return {
        "name": "p",
        "cat": "peers",
        "ph": "X",
        "pid": SERVER + server,
        "tid": 1,
        **times,
        "args": args,
    }


def together(sent_ms: float, left_ms: float, summed_ms: float, key: int) -> List[Event]:
    """What worker 0 saw of a small partition, which has left before it is at the server."""
    pushed, pulled = push(0, sent_ms, left_ms, key), push(0, sent_ms, summed_ms, key)
    pulled["cat"] = "pull"
    for event in (pushed, pulled):
        event["args"] = {**event["args"], "bytes": 1024}
    return [pushed, pulled]


def test_small_partitions_of_a_large_tensor_are_there_when_they_are_acknowledged() -> None:
    nodes = {1: clocks.Clock("a", 0), SERVER: clocks.Clock("c", 0)}
    # The server's clock is 40 ms behind; the sums wait 50 ms for another worker.
    events = []
    for part in range(4):
        events += [*together(100, 102, 150, key=1), came(0, 101 - 40, key=1)]
        for event in events[-3:]:
            event["args"] = {**event["args"], "part": part, "bytes": 8 << 10}
    found = clocks.errors(nodes, events)
    assert abs(found[1] - found[SERVER] - 40 * MS) <= MS


def test_small_tensors_are_there_when_their_sum_is() -> None:
    nodes = {1: clocks.Clock("a", 0), SERVER: clocks.Clock("c", 0)}
    # The server's clock is 40 ms behind; what has left at 100.1 came at 101.
    events = [*together(100, 100.1, 102, key=1), came(0, 101 - 40, key=1)]
    for order in (events, events[::-1]):
        found = clocks.errors(nodes, order)
        assert abs(found[1] - found[SERVER] - 40 * MS) <= MS


def test_the_quickest_partitions_tell_how_far_clocks_are_apart() -> None:
    nodes = {1: clocks.Clock("a", 0), 2: clocks.Clock("b", 7 * MS), SERVER: clocks.Clock("c", 0)}
    # The server's clock is 40 ms behind; worker 1's is 12 ms ahead of worker 0's, whose is right.
    events = [
        push(0, 100, 110, key=1),
        came(0, 101 - 40, key=1),
        push(0, 200, 201, key=2),
        came(0, 200.5 - 40, key=2),
        push(1, 300 + 12 - 7, 302 + 12 - 7, key=3),
        came(1, 301 - 40, key=3),
        push(1, 400 + 12 - 7, 499, key=4),
        came(1, 400.5 - 40, key=4),
        push(1, 600, 601, key=5),  # was not the last to come
        came(0, 0, key=5),
    ]
    for order in (events, events[::-1]):
        ahead = clocks.errors(nodes, order)
        assert ahead[1] == 0
        assert abs(ahead[SERVER] + 40 * MS) <= 0.5 * MS
        assert abs(ahead[2] - 12 * MS) <= 1.5 * MS


def test_wall_clocks_that_may_be_right_are_believed() -> None:
    nodes = {1: clocks.Clock("a", 0), SERVER: clocks.Clock("b", 0)}
    assert clocks.errors(nodes, [push(0, 10, 20, key=1), came(0, 11, key=1)]) == {1: 0, SERVER: 0}


def test_clocks_that_run_apart_are_believed() -> None:
    nodes = {1: clocks.Clock("a", 0), SERVER: clocks.Clock("b", 0)}
    early = [push(0, 10, 11, key=1), came(0, 10.5, key=1)]
    late = [push(0, 9010, 9011, key=2), came(0, 9510.5, key=2)]
    assert clocks.errors(nodes, early + late) == {1: 0, SERVER: 0}
    assert clocks.errors(nodes, late) == {1: 0, SERVER: 500 * MS}


def test_nodes_of_one_host_have_one_clock() -> None:
    nodes = {1: clocks.Clock("a", 0), 2: clocks.Clock("a", 0), SERVER: clocks.Clock("b", 0)}
    nodes[SERVER + 1] = clocks.Clock("b", 0)
    events = [push(1, 10, 20, key=1, server=1), came(1, 35, key=1, server=1)]
    ahead = clocks.errors(nodes, events)
    assert ahead == {1: 0, 2: 0, SERVER: 20 * MS, SERVER + 1: 20 * MS}


def test_a_clock_that_shares_no_message_is_believed() -> None:
    nodes = {1: clocks.Clock("a", 0), 2: clocks.Clock("b", 5), SERVER: clocks.Clock("c", 0)}
    alone = [push(0, 10, 20, key=1), came(1, 99, key=1), came(0, 99, key=2)]
    assert clocks.errors(nodes, alone) == {1: 0, 2: 0, SERVER: 0}


def put(path: pathlib.Path, role: str, rank: int, host: str, *events: Event) -> pathlib.Path:
    about: Dict[str, Any] = {"version": 1, "role": role, "rank": rank, "host": host, "start_ns": 0}
    about.update({"num_workers": 2, "num_servers": 1})
    pid = rank + (1 if role == "worker" else SERVER)
    first = {"name": "bytescheduler", "ph": "M", "pid": pid, "tid": 0, "args": about}
    last = {"name": "bytescheduler_end", "ph": "M", "pid": pid, "tid": 0, "args": {"lost": 0}}
    lines: List[Event] = [first, *events, last]
    path.write_text("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n")
    return path


def test_merged_events_are_on_the_corrected_clock(tmp_path: pathlib.Path) -> None:
    worker = put(tmp_path / "w", "worker", 0, "a", push(0, 100, 102, key=1))
    server = put(tmp_path / "s", "server", 0, "b", came(0, 50, key=1))
    merged = list(timeline.merge([server, worker]))
    (sent,) = (event for event in merged if event.get("cat") == "push")
    (there,) = (event for event in merged if event.get("cat") == "peers")
    assert there["ts"] + there["dur"] == sent["ts"] + sent["dur"] / 2
    # Once put together they agree, and stay as they are.
    again = tmp_path / "all"
    with again.open("w") as file:
        timeline.write(merged, file)
    assert list(timeline.merge([again])) == merged
