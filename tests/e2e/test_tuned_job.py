"""A job of real processes that tunes itself while it trains."""

import json
import pathlib
import re
from typing import Callable, Dict

import pytest
from job import Job

from bytescheduler import timeline

MakeJob = Callable[..., Job]


# An empty setting is the default, with which a change of the steps begins a second search.
@pytest.mark.parametrize(("setting", "searches"), [("", 2), ("once", 1)])
def test_a_job_tunes_itself_and_its_sums_stay_right(
    make_job: MakeJob, tmp_path: pathlib.Path, setting: str, searches: int
) -> None:
    results = tmp_path / "tuning.json"
    env: Dict[str, str] = {
        "BYTESCHEDULER_TUNING": setting,
        "BYTESCHEDULER_TUNING_CACHE": str(results),
        "BYTESCHEDULER_TIMELINE": str(tmp_path / "t.json"),
        "BYTESCHEDULER_LOG_LEVEL": "debug",
    }
    env["PYTHONPATH"] = ""  # the model of what was measured needs scipy
    outputs = make_job().run("tuned_worker.py", str(searches), env=env)
    assert results.exists(), outputs
    (row,) = json.loads(results.read_text())["results"].values()
    assert row["partition"] <= row["credit"]
    (tuned,) = [output for output in outputs if "tuning: " in output]  # rank 0's
    (ran,) = re.findall(r"found (\d) shortest (\S+) longest (\S+)", tuned)
    assert int(ran[0]) == searches, tuned
    # What it remembers is what the caller saw of the last steps.
    assert float(ran[1]) * 0.9 < row["step_s"] < float(ran[2]) * 1.1
    # A search of a busy machine may find that steps changed meanwhile, and begin anew.
    assert len(re.findall(r"instead of \S+ s: searching again", tuned)) == searches - 1, tuned
    changes = re.findall(r"partitions of (\d+) bytes and a credit of (\d+) from", tuned)
    assert len(changes) > 4
    merged = list(timeline.merge([tmp_path / "t-r0.json", tmp_path / "t-r1.json"]))
    decisions = [event["args"] for event in merged if event["ph"] == "i"]  # all of rank 0
    assert [(str(d["partition"]), str(d["credit"])) for d in decisions] == changes
    names = {row["name"] for row in timeline.summary(merged)["tensors"]}
    assert names >= {"a", "b", "c", "d", "e", "stop"}
    assert changes[-1] == (str(row["partition"]), str(row["credit"]))
