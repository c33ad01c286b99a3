"""The timelines of a job of real processes: whole, of all partitions, on one clock."""

import json
import pathlib
from typing import Any, Callable, Dict, List, Tuple

import pytest
from job import Job
from perfetto_trace import NoPerfetto, PerfettoTrace

from bytescheduler import timeline

MakeJob = Callable[..., Job]

COMPLAINTS = """
    SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0
"""
SPANS = """
    SELECT process.name AS node, thread.name AS row, category, slice.name AS name, ts, dur,
           EXTRACT_ARG(slice.arg_set_id, 'args.bytes') AS bytes, depth
    FROM slice JOIN thread_track ON slice.track_id = thread_track.id
         JOIN thread USING (utid) JOIN process USING (upid)
"""
# Of a row it would say "main thread".
MAIN = "SELECT name FROM thread WHERE is_main_thread AND name IS NOT NULL"
COUNTS = """
    SELECT process_counter_track.name AS name, value
    FROM counter JOIN process_counter_track ON counter.track_id = process_counter_track.id
"""


# Which rounds make a step is told by their times, which other jobs beside this one can upset.
@pytest.mark.serial
def test_every_worker_writes_the_spans_of_its_tensors(make_job: MakeJob) -> None:
    job = make_job(servers=2, env={"BYTESCHEDULER_TIMELINE": "t.json"})
    outputs = job.run("cases/cases.py", "native", "sums")
    files = [job.folder / f"t-r{rank}.json" for rank in range(2)]
    servers = [job.folder / f"t-s{rank}.json" for rank in range(2)]
    assert sorted(job.folder.glob("*.json")) == files + servers
    for file, output in zip(files, sorted(outputs, key=lambda text: "INFO worker 1:" in text)):
        assert f"writing a timeline to {file.name}" in output
        assert isinstance(json.loads(file.read_text()), list)
    # A warning, such as that of a file without an end, is an error here.
    found = timeline.summary(timeline.merge(files))
    assert {row["key"] for row in found["tensors"]} >= {3, 4, 5}
    for rank in range(2):
        steps = [row for row in found["steps"] if row["rank"] == rank]
        assert [row["step"] for row in steps] == list(range(1, len(steps) + 1))
        assert len(steps) >= 4
        for row in steps:
            assert row["bytes"] > 0
            assert 0 < row["wire_s"] <= row["seconds"]
    # Each use has a proxy that waited for its tensor, and each step a front from the second on.
    for file in files:
        events = [e for e in timeline.merge([file]) if e.get("ph") == "X"]
        proxies = [e["args"] for e in events if e["cat"] == "proxy"]
        assert {(p["key"], p["round"]) for p in proxies} == {
            (e["args"]["key"], e["args"]["round"])
            for e in events
            if e["cat"] == "tensor" and e["args"]["round"] > 0
        }
        assert any(e["cat"] == "front" and e["dur"] > 0 for e in events)
    # All say by the same number whose job it was.
    abouts = [e["args"] for e in timeline.merge(files + servers) if e["name"] == "bytescheduler"]
    (number,) = {args["job"] for args in abouts}
    assert int(number) > 0
    # The servers made the sums of the same bytes, and one of the workers came last each time.
    with_servers = timeline.summary(timeline.merge(files + servers))
    assert len(with_servers["steps"]) == len(found["steps"])
    sums = [e for e in timeline.merge(servers) if e.get("cat") == "sum" and e["args"]["round"] > 0]
    pushes = [e for e in timeline.merge(files) if e.get("cat") == "push" and e["args"]["round"] > 0]
    pushed = sum(event["args"]["bytes"] for event in pushes)
    assert sum(event["args"]["bytes"] for event in sums) * 2 == pushed
    assert 0 < sum(row["sums"] for row in with_servers["late"]) <= len(sums)
    # Both take part in each round, so on one clock their spans of a round meet.
    spans = [event for event in timeline.merge(files) if event.get("cat") == "tensor"]
    first = {e["pid"]: e for e in spans if e["args"]["key"] == 3 and e["args"]["round"] == 1}
    assert set(first) == {1, 2}
    ends = [first[pid]["ts"] + first[pid]["dur"] for pid in first]
    assert max(span["ts"] for span in first.values()) <= min(ends)


def spans_of(events: List[Dict[str, Any]]) -> List[Tuple[Any, ...]]:
    """Return node, row, kind, name, ns of begin and length, bytes of each span; it has no other."""
    named = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    return sorted(
        (
            named["process_name", e["pid"], 0]["name"],
            named["thread_name", e["pid"], e["tid"]]["name"],
            *(e["cat"], e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)),
            *(e["args"]["bytes"], 0),
        )
        for e in events
        if e["ph"] == "X"
    )


def test_perfetto_has_every_span_and_counter_of_a_merged_one(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    job = make_job(servers=2, env={"BYTESCHEDULER_TIMELINE": "t.json"})
    job.run("cases/cases.py", "native", "sums")
    files = sorted(job.folder.glob("t-*.json"))
    merged = tmp_path / "all.json"
    with merged.open("w") as file:
        timeline.write(timeline.merge(files), file)
    cut_off = tmp_path / "cut.json"
    cut_off.write_bytes(files[0].read_bytes()[:-300])
    try:
        trace = PerfettoTrace(merged)
    except NoPerfetto as missing:
        pytest.skip(f"{missing} is not here (tests/e2e/requirements-perfetto.txt)")
    events = json.loads(merged.read_text())
    counted = [
        (f"{e['name']} {name}", value)
        for e in events
        if e["ph"] == "C"
        for name, value in e["args"].items()
    ]
    with trace:
        assert trace.rows(COMPLAINTS) == trace.rows(MAIN) == []
        assert sorted(tuple(row.values()) for row in trace.rows(SPANS)) == spans_of(events)
        assert sorted(tuple(row.values()) for row in trace.rows(COUNTS)) == sorted(counted)
    with PerfettoTrace(cut_off) as trace:  # of a process that was killed
        assert trace.rows(COMPLAINTS) == []
        whole = sum(event["ph"] == "X" for event in json.loads(files[0].read_text()))
        assert whole - 3 < len(trace.rows(SPANS)) < whole
