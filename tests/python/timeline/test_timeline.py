"""Timelines of workers, put together and summed up; files that are cut off, foreign or damaged."""

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any, Dict, List, Union

import pytest
from click_runner import Runner, runner
from inline_snapshot import snapshot
from sentences import line_with, masked

from bytescheduler import timeline
from bytescheduler._native import FIRST_BOOKKEEPING_KEY

Event = Dict[str, Any]
HUGE = 10**400


def about(rank: int, start_ns: int = 0, **more: object) -> Event:
    args = {"version": 1, "role": "worker", "rank": rank, "num_workers": 2, "num_servers": 1}
    args.update({"host": "h", "start_ns": start_ns, **more})
    return {"name": "bytescheduler", "ph": "M", "pid": rank + 1, "tid": 0, "args": args}


def span(rank: int, kind: str, begin: float, end: float, **args: object) -> Event:
    known = {"key": 7, "part": 0, "round": 1, "bytes": 100, "priority": -7, "server": 0, **args}
    event = {"name": f"key {known['key']}", "cat": kind, "ph": "X", "pid": rank + 1, "tid": 1}
    return {**event, "ts": begin, "dur": end - begin, "args": known}


def the_end(rank: int, lost: int = 0) -> Event:
    args = {"lost": lost}
    return {"name": "bytescheduler_end", "ph": "M", "pid": rank + 1, "tid": 0, "args": args}


class Folder:
    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def put(self, name: str, *events: Union[Event, str], end: str = "\n]\n") -> str:
        lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
        file = self.path / name
        file.write_text("[\n" + ",\n".join(lines) + end)
        return str(file)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Folder:
    return Folder(tmp_path)


def spans(events: List[Event]) -> List[Event]:
    return [event for event in events if event["ph"] == "X"]


def test_clocks_are_aligned_by_the_hosts_wall_clocks(folder: Folder) -> None:
    late = folder.put("a", about(0, 5_000_000), span(0, "push", 1, 3), the_end(0))
    early = folder.put("b", about(1, 2_000_500), span(1, "push", 1, 3), the_end(1))
    events = list(timeline.merge([late, early]))
    assert [event["ts"] for event in spans(events)] == [1 + 2999.5, 1]
    assert [event["pid"] for event in spans(events)] == [1, 2]


def key_name(rank: int, key: object, name: object) -> Event:
    args = {"key": key, "name": name}
    return {"name": "bytescheduler_key", "ph": "M", "pid": rank + 1, "tid": 0, "args": args}


def test_a_merged_file_has_the_framework(folder: Folder) -> None:
    named = {"name": "bytescheduler_framework", "ph": "M", "pid": 1, "args": {"framework": "torch"}}
    file = folder.put("a", about(0), named, span(0, "push", 1, 3), the_end(0))
    assert named in list(timeline.merge([file]))


@pytest.mark.parametrize("name", [None, 3, ["torch"]])
def test_a_framework_without_a_name_is_damage(folder: Folder, name: object) -> None:
    named = {"name": "bytescheduler_framework", "ph": "M", "pid": 1, "args": {"framework": name}}
    file = folder.put("a", about(0), named, the_end(0))
    with pytest.raises(timeline.TimelineError, match="line 3: not the name of a framework"):
        list(timeline.merge([file]))


def test_tensors_have_the_names_of_their_keys(folder: Folder) -> None:
    named = [span(0, kind, 1, 3) for kind in ("push", "pull", "tensor")]
    other = [span(0, kind, 1, 2, key=8) for kind in ("push", "pull", "tensor")]
    file = folder.put("a", about(0), key_name(0, 7, "fc1_weight"), *named, *other, the_end(0))
    rows = timeline.summary(timeline.merge([file]))["tensors"]
    assert {row["key"]: row["name"] for row in rows} == {7: "fc1_weight", 8: None}
    result = runner().invoke(timeline.timeline, [file])
    assert "fc1_weight" in result.stdout


def test_the_summary_shows_the_bytes_of_each_carrier(folder: Folder) -> None:
    rdma, tcp = {"carrier": "rdma"}, {"carrier": "tcp", "part": 1}
    pushes = [span(0, "push", 1, 3, **rdma), span(0, "push", 1, 4, **tcp)]
    pulls = [span(0, "pull", 1, 5, **rdma), span(0, "pull", 1, 6, **{**rdma, "part": 1})]
    unknown = [span(0, "push", 7, 8, round=2), span(0, "tensor", 1, 6)]
    file = folder.put("a", about(0), *pushes, *pulls, *unknown, the_end(0))
    found = timeline.summary(timeline.merge([file]))
    assert found["carriers"] == [
        {"rank": 0, "carrier": "rdma", "pushed_bytes": 100, "pulled_bytes": 200},
        {"rank": 0, "carrier": "tcp", "pushed_bytes": 100, "pulled_bytes": 0},
    ]
    shown = timeline.table(found).split("The carriers of all bytes:\n")[1].splitlines()
    assert [line.split() for line in shown[1:3]] == [
        ["0", "rdma", "100", "B", "200", "B"],
        ["0", "tcp", "100", "B", "0", "B"],
    ]


@pytest.mark.parametrize("name", ["carrier", "coding"])
def test_a_carrier_or_codec_that_is_no_text_is_damage(folder: Folder, name: str) -> None:
    file = folder.put("a", about(0), span(0, "push", 1, 3, **{name: 7}), the_end(0))
    with pytest.raises(timeline.TimelineError, match=f"'{name}' is not a text"):
        list(timeline.merge([file]))


def test_spans_of_servers_have_the_names_that_workers_give_their_keys(folder: Folder) -> None:
    server = {**about(20000, role="server"), "args": {**about(0)["args"], "role": "server"}}
    sums = [span(20000, "sum", 1, 2), span(20000, "sum", 2, 3, key=8)]
    one = folder.put("s", server, *sums, the_end(20000))
    other = folder.put(
        "r", about(0), key_name(0, 7, "fc1_weight"), span(0, "push", 1, 3), the_end(0)
    )
    merged = {
        e["args"]["key"]: e["name"]
        for e in spans(list(timeline.merge([one, other])))
        if e["pid"] > 1
    }
    assert merged == {7: "fc1_weight", 8: "key 8"}
    alone = [event["name"] for event in spans(list(timeline.merge([one])))]
    assert alone == ["key 7", "key 8"]


def test_the_engines_own_keys_are_named_by_their_use(folder: Folder) -> None:
    server = {**about(20000, role="server"), "args": {**about(0)["args"], "role": "server"}}
    own = {"key": 2**64 - 1}
    pushed = [span(0, kind, 1, 3, **own) for kind in ("push", "pull", "tensor")]
    one = folder.put("r", about(0), *pushed, the_end(0))
    other = folder.put("s", server, span(20000, "sum", 1, 2, key=2**64 - 2), the_end(20000))
    named = {event["name"] for event in spans(list(timeline.merge([one, other])))}
    assert named == {"measured order", "size of the measured order"}
    assert named == {event["name"] for event in spans(list(timeline.merge([one])))} | {
        event["name"] for event in spans(list(timeline.merge([other])))
    }
    found = timeline.summary(timeline.merge([one]))
    assert found["tensors"] == []
    assert [row["name"] for row in found["internal"]] == ["measured order"]


def test_agreements_of_workers_stand_apart_from_tensors(folder: Folder) -> None:
    # The key alone says it: a script may give any name.
    names = {7: "fc1_weight", 8: "notes of optimizer", 9: "rows of fc1_weight"}
    own = ["notes of optimizer", "tally 1 of all gradients", "relay of 64 bytes, 0", "fc1_weight"]
    names.update(zip(range(FIRST_BOOKKEEPING_KEY, 2**64), own))
    spans = [span(0, kind, 1, 3, key=key) for key in names for kind in ("push", "pull", "tensor")]
    named = [key_name(0, key, name) for key, name in names.items()]
    file = folder.put("a", about(0), *named, *spans, the_end(0))
    found = timeline.summary(timeline.merge([file]))
    assert [row["name"] for row in found["tensors"]] == list(names.values())[:3]
    assert [row["name"] for row in found["internal"]] == own
    tensors, internal = timeline.table(found).split("agree on by themselves:")
    assert "fc1_weight" in tensors
    assert "tally 1 of all gradients" not in tensors
    assert "tally 1 of all gradients" in internal


@pytest.mark.parametrize(("key", "name"), [(-1, "a"), ("a", "a"), (1, 2)])
def test_a_name_that_is_none_is_damage(folder: Folder, key: object, name: object) -> None:
    file = folder.put("a", about(0), key_name(0, key, name), the_end(0))
    with pytest.raises(timeline.TimelineError, match="line 3: not the name of a key"):
        list(timeline.merge([file]))


def test_decisions_are_moments_on_the_same_clock(folder: Folder) -> None:
    decision = {
        "name": "d",
        "cat": "decision",
        "ph": "i",
        "s": "p",
        "pid": 1,
        "ts": 2.0,
        "args": {},
    }
    late = folder.put("a", about(0, 5_000_000), span(0, "push", 1, 3), decision, the_end(0))
    early = folder.put("b", about(1, 2_000_500), span(1, "push", 1, 3), the_end(1))
    events = list(timeline.merge([late, early]))
    assert [event["ts"] for event in events if event["ph"] == "i"] == [2 + 2999.5]
    others = [event for event in events if event["ph"] != "i"]
    assert timeline.summary(events) == timeline.summary(others)


def test_a_merged_timeline_can_be_read_again(folder: Folder) -> None:
    first = folder.put("a", about(0, 5000), span(0, "push", 1, 3), the_end(0))
    second = folder.put("b", about(1, 2000), span(1, "push", 1, 3), the_end(1))
    events = list(timeline.merge([first, second]))
    merged = folder.path / "all.json"
    with merged.open("w") as file:
        timeline.write(events, file)
    assert json.loads(merged.read_text()) == events
    assert list(timeline.merge([merged])) == events


def test_a_cut_off_file_loses_its_last_event_only(folder: Folder) -> None:
    whole = [about(0), span(0, "push", 1, 3), span(0, "push", 4, 5)]
    text = pathlib.Path(folder.put("a", *whole)).read_text()
    last = text.index("{", text.index('"ts": 1'))
    last = text.index('{"name"', last)
    cut = folder.path / "cut"
    for length in range(last + 1, len(text.rstrip("\n]"))):
        cut.write_text(text[:length])
        with pytest.warns(timeline.TimelineWarning, match="cut is cut off: its last event"):
            assert list(timeline.merge([cut])) == whole[:2]


@pytest.mark.parametrize("end", ["", ",", ",\n"])
def test_a_file_without_its_end_is_told(folder: Folder, end: str) -> None:
    file = folder.put("a", about(0), span(0, "push", 1, 3), end=end)
    with pytest.warns(timeline.TimelineWarning, match="a has no end") as raised:
        assert len(spans(list(timeline.merge([file])))) == 1
    assert masked(str(raised[0].message), FOLDER=folder.path) == snapshot(
        "FOLDER/a has no end: its process was killed or still runs, or its disk was full"
    )


def test_events_that_could_not_be_written_are_told(folder: Folder) -> None:
    file = folder.put("a", about(0), the_end(0, lost=12))
    with pytest.warns(timeline.TimelineWarning, match="a lacks 12 events"):
        list(timeline.merge([file]))


@pytest.mark.parametrize(
    "content",
    [
        "hello\n",
        "\x7fELF\x00\x01",
        '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "name": "a"}]}',
        '[\n{"ph": "X", "ts": 1, "dur": 2, "name": "a", "pid": 1, "args": {}}\n]\n',
        "[]",
        "[\n",
        '[\n{"name":"bytesch',
        "[" * 100_000,
        '[\n{"name":"bytescheduler","ph":"M","pid":1,"args":{"rank":0}}\n]\n',
    ],
)
def test_a_foreign_file_is_refused(tmp_path: pathlib.Path, content: str) -> None:
    file = tmp_path / "foreign"
    file.write_text(content)
    with pytest.raises(timeline.TimelineError, match="foreign is no timeline of bytescheduler"):
        timeline.merge([file])


def test_an_empty_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "none").touch()
    with pytest.raises(timeline.TimelineError, match="none is empty"):
        timeline.merge([tmp_path / "none"])


def test_a_newer_format_is_refused(folder: Folder) -> None:
    file = folder.put("a", about(0, version=2))
    with pytest.raises(timeline.TimelineError, match="version 2 of the format"):
        timeline.merge([file])


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("{", "a, line 3: not JSON"),
        ("7", "line 3: not an event"),
        ({"ph": "B", "pid": 1, "args": {}}, "line 3: not an event of a timeline of ours"),
        ({"ph": [], "pid": 1, "args": {}}, "line 3: not an event of a timeline of ours"),
        ({"ph": "C", "pid": 1, "args": {}}, "line 3: 'ts' is not a number"),
        ({**span(0, "push", 1, 3), "ts": "1"}, "line 3: 'ts' is not a number"),
        ({**span(0, "push", 1, 3), "ts": HUGE}, "line 3: 'ts' is not a number"),
        ({**span(0, "push", 1, 3), "dur": float("nan")}, "line 3: 'dur' is not a number"),
        ({**span(0, "push", 1, 3), "dur": -5}, "line 3: 'dur' is negative"),
        (span(0, "sleep", 1, 3), "line 3: a span of an unknown kind, 'sleep'"),
        (span(0, "push", 1, 3, key=-1), "line 3: 'key' is not a number from 0"),
        (span(0, "push", 1, 3, bytes=HUGE), "line 3: 'bytes' is not a number from 0"),
        (span(0, "push", 1, 3, round=2**64), "line 3: 'round' is not a number from 0"),
        (span(0, "push", 1, 3, priority="high"), "line 3: 'priority' is not a number"),
        (span(0, "tensor", 1, 3, priority=None), "line 3: 'priority' is not a number"),
        (span(5, "push", 1, 3), "line 3: pid 6 told nothing about itself"),
    ],
)
def test_damage_in_the_middle_is_an_error_that_names_the_line(
    folder: Folder, event: "Event | str", message: str
) -> None:
    file = folder.put("a", about(0), event, the_end(0))
    with pytest.raises(timeline.TimelineError, match=message):
        list(timeline.merge([file]))


def test_two_files_of_one_worker_are_refused(folder: Folder) -> None:
    first, second = folder.put("a", about(0)), folder.put("b", about(0))
    with pytest.raises(timeline.TimelineError, match="a and .*b are both of worker 0"):
        timeline.merge([first, second])


def test_files_of_two_runs_of_the_same_size_are_refused(folder: Folder) -> None:
    server = {**about(20000, job="5"), "args": {**about(0, job="5")["args"], "role": "server"}}
    first = folder.put("a", about(0, job="5"), the_end(0))
    second = folder.put("b", server, the_end(20000))
    older = folder.put("c", about(1, job="18446744073709551615"), the_end(1))
    message = (
        f"not of one run: job 5 wrote {first}, {second}; job 18446744073709551615 wrote {older}"
    )
    with pytest.raises(timeline.TimelineError, match=re.escape(message)):
        timeline.merge([first, second, older])
    # What does not say it may be of either.
    unknown = folder.put("d", about(1), the_end(1))
    merged = folder.put("e", *timeline.merge([first, second, unknown]))
    assert len(list(timeline.merge([merged]))) == 6
    other = folder.put("f", about(2, job="6"), the_end(2))
    with pytest.raises(timeline.TimelineError, match=f"job 5 wrote {merged}; job 6 wrote {other}"):
        timeline.merge([merged, other])
    with pytest.raises(timeline.TimelineError, match="line 2: 'job' is no text"):
        timeline.merge([folder.put("g", about(0, job=5))])


@pytest.mark.parametrize("name", ["t-r0.json", "t-s1.json", "t-r10", "t-s01.json"])
def test_a_file_named_after_another_node_is_refused(folder: Folder, name: str) -> None:
    says = {"t-r0.json": "worker 0", "t-r10": "worker 10"}.get(name, "server 1")
    file = folder.put(name, about(1), the_end(1))
    with pytest.raises(
        timeline.TimelineError, match=f"{name} is of worker 1, and its name says {says}$"
    ):
        timeline.merge([file])


@pytest.mark.parametrize("name", ["t-r1.json", "t-r1", "a-r0-b.json", "a-r0.b.json", "r0.json"])
def test_a_file_may_have_its_own_name_or_any(folder: Folder, name: str) -> None:
    assert len(list(timeline.merge([folder.put(name, about(1), the_end(1))]))) == 2


@pytest.mark.parametrize(
    ("other", "job"),
    [
        ({"num_workers": 3}, "3 workers and 1 server"),
        ({"num_servers": 2}, "2 workers and 2 servers"),
    ],
)
def test_files_of_two_jobs_are_refused(folder: Folder, other: Dict[str, int], job: str) -> None:
    first, second = folder.put("a", about(0)), folder.put("b", about(1, **other))
    message = f"these are not of one job: {first} of 2 workers and 1 server, {second} of {job}"
    with pytest.raises(timeline.TimelineError, match=f"^{re.escape(message)}$"):
        timeline.merge([first, second])


@pytest.mark.parametrize("name", ["start_ns", "num_workers", "num_servers"])
@pytest.mark.parametrize("value", [[], -1, "2", None])
def test_the_numbers_that_describe_a_file_are_checked(
    folder: Folder, name: str, value: object
) -> None:
    about_itself = about(0)
    about_itself["args"][name] = value
    file = folder.put("a", about_itself)
    with pytest.raises(timeline.TimelineError, match=f"a, line 2: '{name}' is not a number from 0"):
        timeline.merge([file])


# Two partitions of a tensor, in microseconds:
#   part 0   queued 0-10   on the wire 10-40    sum at 90
#   part 1   queued 0-40   on the wire 40-70    sum at 80
def a_step(rank: int, number: int, at: float = 0, slower: float = 0) -> List[Event]:
    of = {"round": number}
    return [
        span(rank, "queue", at, at + 10, **of),
        span(rank, "queue", at, at + 40, part=1, **of),
        span(rank, "push", at + 10, at + 40, **of),
        span(rank, "push", at + 40, at + 70, part=1, **of),
        span(rank, "pull", at + 10, at + 90 + slower, **of),
        span(rank, "pull", at + 40, at + 80, part=1, **of),
        span(rank, "tensor", at, at + 90 + slower, bytes=200, **of),
    ]


def test_a_step_has_the_times_in_which_something_was_queued_sent_or_awaited() -> None:
    (step,) = timeline.summary(a_step(0, 1))["steps"]
    assert (step["rank"], step["step"], step["bytes"]) == (0, 1, 200)
    assert step["seconds"] == pytest.approx(90e-6)
    assert step["queued_s"] == pytest.approx(40e-6)  # not 50: both at once count once
    assert step["wire_s"] == pytest.approx(60e-6)
    assert step["waiting_s"] == pytest.approx(50e-6)  # 40 to 90


# Its proxy waited for the gradient before the step; the last gradient was there after 60.
def at_the_front(rank: int, number: int, at: float = 0) -> List[Event]:
    of = {"round": number, "bytes": 200}
    return [span(rank, "proxy", at - 500, at, **of), span(rank, "front", at + 60, at + 90, **of)]


def test_a_step_tells_the_time_lost_before_the_next_forward_pass() -> None:
    events = [*a_step(0, 1), *a_step(0, 2, at=200), *at_the_front(0, 2, at=200)]
    # Of a key that is in no step, whose rounds are others.
    events += [span(0, "front", 280, 290, key=99, round=number) for number in (1, 2)]
    found = timeline.summary(events)
    first, second = found["steps"]
    assert first["lost_s"] is None
    assert second["lost_s"] == pytest.approx(30e-6)
    assert second["seconds"] == pytest.approx(90e-6)  # without what the proxy waited
    assert found["ranks"][0]["lost_s"] == pytest.approx(30e-6)
    assert not found["late"]
    assert timeline.summary(a_step(0, 1))["ranks"][0]["lost_s"] is None
    assert timeline.table(timeline.summary(a_step(0, 1))).count("0.05     -\n") == 2


def test_the_first_values_of_keys_are_no_step() -> None:
    assert not any(timeline.summary(a_step(0, 0)).values())
    assert timeline.table(timeline.summary([])) == "no step is in there\n"


def test_a_sum_there_before_the_acknowledgement_waited_for_no_worker() -> None:
    events = [span(0, "push", 0, 10), span(0, "pull", 0, 8)]
    found = timeline.summary(events)
    assert found["steps"][0]["waiting_s"] == 0
    assert found["tensors"][0]["wait_max_s"] == 0


def test_ranks_are_medians_of_their_steps() -> None:
    events = a_step(1, 1) + a_step(0, 1) + a_step(0, 2, 1000) + a_step(0, 3, 2000, slower=500)
    ranks = timeline.summary(events)["ranks"]
    assert [(row["rank"], row["steps"]) for row in ranks] == [(0, 3), (1, 1)]
    assert ranks[0]["seconds"] == pytest.approx(90e-6)


def test_the_ten_tensors_that_wait_longest() -> None:
    events = []
    for key in range(12):
        for rank in range(2):
            wait = key * (rank + 1)
            events.append(span(rank, "push", 0, 10, key=key))
            events.append(span(rank, "pull", 0, 10 + wait, key=key))
            events.append(span(rank, "tensor", 0, 10 + wait, key=key, bytes=1 << 20))
    rows = timeline.summary(events)["tensors"]
    assert [row["key"] for row in rows] == list(range(11, 1, -1))
    assert rows[0]["wait_mean_s"] == pytest.approx(16.5e-6)
    assert rows[0]["wait_max_s"] == pytest.approx(22e-6)
    assert (rows[0]["rank_of_max"], rows[0]["step_of_max"], rows[0]["bytes"]) == (1, 1, 1 << 20)


def of_server(rank: int, kind: str, begin: float, end: float, **args: int) -> Event:
    return {**span(0, kind, begin, end, **args), "pid": 20001 + rank}


def test_servers_tell_the_last_worker_and_the_time_of_sums() -> None:
    events = [
        of_server(0, "peers", 0, 10, last=1),
        of_server(0, "sum", 10, 12),
        of_server(0, "peers", 0, 30, last=1, part=1),
        of_server(0, "sum", 30, 34, part=1),
        of_server(1, "peers", 0, 5, last=0),
        of_server(1, "peers", 5, 5, last=0, part=1),
        of_server(1, "peers", 0, 9, last=0, round=0),
    ]
    found = timeline.summary(a_step(0, 1) + events)
    assert [row["step"] for row in found["steps"]] == [1]
    assert found["servers"] == [{"rank": 0, "sums": 2, "sum_s": pytest.approx(3e-6)}]
    assert found["late"] == [
        {"rank": 0, "sums": 1, "seconds": pytest.approx(5e-6)},
        {"rank": 1, "sums": 2, "seconds": pytest.approx(40e-6)},
    ]
    assert timeline.table(found) == snapshot("""\
A step, medians in milliseconds:
rank  steps   sent    ms  queued  on the wire  waiting for others  lost
   0      1  200 B  0.09    0.04         0.06                0.05     -

The longest steps:
rank  step   sent    ms  queued  on the wire  waiting for others  lost
   0     1  200 B  0.09    0.04         0.06                0.05     -

The tensors that wait longest for other workers:
key   size  mean ms  longest  on rank  in step
  7  200 B     0.02     0.02        0        1

Workers that came last, and for how long the first one waited:
rank  sums  ms in all
   0     1       0.01
   1     2       0.04

Servers, from the last push to the sum:
rank  sums  mean us
   0     2      3.0
""")


def test_servers_files_alone_make_a_table() -> None:
    events = [of_server(0, "peers", 0, 10, last=1), of_server(0, "sum", 10, 12)]
    late = (
        "Workers that came last, and for how long the first one waited:\n"
        "rank  sums  ms in all\n   1     1       0.01\n"
    )
    sums = "Servers, from the last push to the sum:\nrank  sums  mean us\n   0     1      2.0\n"
    assert timeline.table(timeline.summary(events)) == f"{late}\n{sums}"
    assert timeline.table(timeline.summary(events[1:])) == sums


def test_a_server_is_another_node_than_the_worker_of_its_rank(folder: Folder) -> None:
    worker = folder.put("a", about(0), the_end(0))
    server = {**about(0, role="server"), "pid": 20001}
    first, second = (folder.put(name, server) for name in ("b", "c"))
    assert len(list(timeline.merge([worker, first]))) == 3
    with pytest.raises(timeline.TimelineError, match="b and .*c are both of server 0"):
        timeline.merge([first, second])


def test_the_command_prints_a_table_and_writes_one_file(folder: Folder) -> None:
    first = folder.put("a", about(0), *a_step(0, 1), *at_the_front(0, 1), the_end(0))
    second = folder.put("b", about(1), *a_step(1, 1), span(1, "push", 1, 2), end=",\n{")
    out = str(folder.path / "all.json")
    done = subprocess.run(
        [sys.executable, "-m", "bytescheduler.timeline", first, second, "-o", out],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == snapshot("""\
A step, medians in milliseconds:
rank  steps   sent    ms  queued  on the wire  waiting for others  lost
   0      1  200 B  0.09    0.04         0.06                0.05  0.03
   1      1  300 B  0.09    0.04         0.03                0.09     -

The longest steps:
rank  step   sent    ms  queued  on the wire  waiting for others  lost
   0     1  200 B  0.09    0.04         0.06                0.05  0.03
   1     1  300 B  0.09    0.04         0.03                0.09     -

The tensors that wait longest for other workers:
key   size  mean ms  longest  on rank  in step
  7  200 B     0.02     0.02        1        1
""")
    assert masked(done.stderr, FILE=second) == snapshot(
        "bytescheduler: FILE is cut off: its last event is left out\n"
    )
    assert len(json.loads(pathlib.Path(out).read_text())) == 20


def test_the_command_prints_json(folder: Folder) -> None:
    file = folder.put("a", about(0), *a_step(0, 1), the_end(0))
    done = Runner().invoke(timeline.timeline, [file, "--json"])
    assert done.exit_code == 0
    assert json.loads(done.output) == timeline.summary(timeline.merge([file]))


def test_the_command_refuses_files_that_it_cannot_use(folder: Folder) -> None:
    file = folder.put("a", about(0), the_end(0))
    nosuch, fifo = str(folder.path / "nosuch"), str(folder.path / "fifo")
    os.mkfifo(fifo)
    for arguments, message in [
        ([nosuch], f"bytescheduler: {nosuch}: No such file or directory\n"),
        ([str(folder.path)], f"bytescheduler: {folder.path}: Is a directory\n"),
        ([file, "/dev/null"], "bytescheduler: /dev/null is no file: timelines are read more than"),
        ([fifo], f"bytescheduler: {fifo} is no file: timelines are read more than once"),
        ([file, "-o", str(folder.path)], f"bytescheduler: {folder.path}: Is a directory\n"),
        ([""], "bytescheduler: '': No such file or directory\n"),
        ([file, "-o", ""], "bytescheduler: '': No such file or directory\n"),
        ([file, file], "are both of worker 0"),
        ([file, "-o", file], f"{file} is one of the files to read"),
        ([file, "-o", str(folder.path / "no" / "all")], "no/all: No such file or directory"),
        ([file, "-o", "/dev/full"], "bytescheduler: /dev/full: No space left on device\n"),
    ]:
        done = Runner().invoke(timeline.timeline, arguments)
        assert done.exit_code == 2, arguments
        assert done.output.startswith("bytescheduler: ")
        assert message in done.output
    assert pathlib.Path(file).read_text().startswith("[\n")
    assert Runner().invoke(timeline.timeline, []).exit_code == 2


def test_a_refused_file_leaves_the_older_timeline(folder: Folder) -> None:
    damaged = folder.put("a", about(0), *a_step(0, 1), "{", the_end(0))
    out = folder.path / "all.json"
    out.write_text("an older one")
    done = Runner().invoke(timeline.timeline, [damaged, "-o", str(out)])
    assert done.exit_code == 2
    assert "not JSON" in done.output
    assert out.read_text() == "an older one"
    assert sorted(path.name for path in folder.path.iterdir()) == ["a", "all.json"]


def test_stdout_takes_the_timeline_and_nothing_else(folder: Folder) -> None:
    file = folder.put("a", about(0), *a_step(0, 1), the_end(0))
    command = f"{sys.executable} -m bytescheduler.timeline {file} -o /dev/stdout"
    into = folder.path / "printed"
    for how in (f">{into}", f"| cat >{into}"):
        subprocess.run(["sh", "-c", f"{command} {how}"], check=True)
        assert json.loads(into.read_text()) == list(timeline.merge([file]))
    both = subprocess.run([*command.split(), "--json"], capture_output=True, text=True, check=False)
    assert (both.returncode, both.stdout) == (2, "")
    assert line_with("--json", both.stderr) == snapshot(
        "bytescheduler: stdout takes the summary (--json) or what is written there, not both"
    )
