"""A job of real processes that tunes itself while it trains."""

import json
import pathlib
import re
from typing import Any, Callable, Dict, List, Tuple

import pytest
from job import Job

from bytescheduler import timeline

MakeJob = Callable[..., Job]
Event = Dict[str, Any]
Cut = Dict[int, int]  # bytes by part

BYTES = 4 * 100_000  # of each of the tensors
SERVERS = "servers"
# How the results of a job of two workers and two servers are kept: one more tensor is of 4 bytes,
# and the workers compare what they do by two notes.
NOTES = 240
KEY = f"8 tensors, {5 * BYTES + 4 + NOTES} bytes; 2 workers, 2 servers, 127.0.0.1"


def cuts(events: List[Event]) -> Dict[str, Dict[int, Dict[str, Cut]]]:
    """Return by key and round how each worker, and all servers together, saw the tensor cut."""
    nodes = {e["pid"]: e["args"] for e in events if e["name"] == "bytescheduler"}
    named = {
        e["args"]["key"]: e["args"]["name"] for e in events if e["name"] == "bytescheduler_key"
    }
    found: Dict[str, Dict[int, Dict[str, Cut]]] = {}
    for event in events:
        if event.get("cat") not in ("push", "sum"):
            continue
        args, node = event["args"], nodes[event["pid"]]
        who = SERVERS if node["role"] == "server" else f"worker {node['rank']}"
        rounds = found.setdefault(named.get(args["key"], ""), {})
        cut = rounds.setdefault(args["round"], {}).setdefault(who, {})
        assert args["part"] not in cut or not named.get(args["key"]), event
        cut[args["part"]] = args["bytes"]
    return found


def assert_all_change_over(events: List[Event], partition: int) -> None:
    """In each round everybody has the same cut, and in the last that of `partition`."""
    partition -= partition % 64
    expected = [min(partition, BYTES - begin) for begin in range(0, BYTES, partition)]
    of = cuts(events)
    for key in ("a", "b", "c", "d", "e"):
        for number, seen in of[key].items():
            if number == 0:  # that they begin with
                continue
            assert set(seen) == {"worker 0", "worker 1", SERVERS}, (key, number)
            assert seen["worker 0"] == seen["worker 1"] == seen[SERVERS], (key, number)
            assert sum(seen[SERVERS].values()) == BYTES, (key, number)
        last = of[key][max(of[key])][SERVERS]
        assert [last[part] for part in sorted(last)] == expected, key
        assert len({tuple(sorted(seen[SERVERS].items())) for seen in of[key].values()}) > 2, key


def changes_of(output: str) -> List[Tuple[str, str]]:
    """Return the partitions and credits that a worker says it changes over to."""
    return re.findall(r"partitions of (\d+) bytes and a credit of (\d+) from", output)


@pytest.mark.serial
# An empty setting is the default, with which a change of the steps begins a second search.
@pytest.mark.parametrize(("setting", "searches"), [("", 2), ("once", 1)])
def test_a_job_tunes_itself_and_its_sums_stay_right(
    make_job: MakeJob, tmp_path: pathlib.Path, setting: str, searches: int
) -> None:
    results = tmp_path / "tuning.json"
    env: Dict[str, str] = {
        "BYTESCHEDULER_TUNING": setting,
        "BYTESCHEDULER_TUNING_CACHE": str(results),
        "BYTESCHEDULER_LOG_LEVEL": "debug",
    }
    env["PYTHONPATH"] = ""  # the model of what was measured needs scipy
    job = make_job(servers=2, env={"BYTESCHEDULER_TIMELINE": str(tmp_path / "t.json")})
    outputs = job.run("steps/tuned_worker.py", str(searches), "2", env=env)
    assert results.exists(), outputs
    ((key, row),) = json.loads(results.read_text())["results"].items()
    assert key == KEY
    assert row["partition"] <= row["credit"]
    (tuned,) = [output for output in outputs if "tuning: " in output]  # rank 0's
    (ran,) = re.findall(r"found (\d) shortest (\S+) longest (\S+)", tuned)
    assert int(ran[0]) == searches, tuned
    # What it remembers is what the caller saw of the last steps.
    assert float(ran[1]) * 0.9 < row["step_s"] < float(ran[2]) * 1.1
    # A search of a busy machine may find that steps changed meanwhile, and begin anew.
    assert len(re.findall(r"instead of \S+ s: searching again", tuned)) == searches - 1, tuned
    changes = changes_of(tuned)
    assert len(changes) > 4
    merged = list(timeline.merge(sorted(tmp_path.glob("t-*.json"))))
    assert_all_change_over(merged, row["partition"])
    decisions = [event["args"] for event in merged if event["ph"] == "i"]  # all of rank 0
    assert [(str(d["partition"]), str(d["credit"])) for d in decisions] == changes
    names = {row["name"] for row in timeline.summary(merged)["tensors"]}
    assert names >= {"a", "b", "c", "d", "e", "stop"}
    assert changes[-1] == (str(row["partition"]), str(row["credit"]))
    if searches == 1:  # its steps are those of the next job too
        assert_next_job_takes_it_up(make_job(servers=2), env, results, changes[-1])


def assert_next_job_takes_it_up(
    job: Job, env: Dict[str, str], results: pathlib.Path, kept: Tuple[str, str]
) -> None:
    """A job finds what is kept, and tries it unless steps take another time by then."""
    # Where no search ends, so that it has something to try, and says what came of it.
    begin = {"BYTESCHEDULER_PARTITION": "100KiB", "BYTESCHEDULER_CREDIT": "500KiB"}
    outputs = job.run("steps/tuned_worker.py", "0", "120", env={**env, **begin})
    (tuned,) = [output for output in outputs if "tuning: " in output]
    assert re.search(rf"(as|which|and) {re.escape(str(results))} has", tuned), tuned
    assert "on another cluster" not in tuned
    assert changes_of(tuned)[0] == ("102400", "512000")  # it is told to stay there at first
    assert changes_of(tuned)[1:2] == [kept] or "searching again" in tuned, tuned
    assert list(json.loads(results.read_text())["results"]) == [KEY]
