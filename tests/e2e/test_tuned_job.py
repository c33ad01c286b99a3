"""A job of real processes that tunes itself while it trains."""

import json
import pathlib
import re
from typing import Callable, Dict

import pytest
from job import Job

from bytescheduler import timeline

MakeJob = Callable[..., Job]


# An empty setting is the default.
@pytest.mark.parametrize("setting", ["", "once"])
def test_a_job_tunes_itself_and_its_sums_stay_right(
    make_job: MakeJob, tmp_path: pathlib.Path, setting: str
) -> None:
    results = tmp_path / "tuning.json"
    env: Dict[str, str] = {
        "BYTESCHEDULER_TUNING": setting,
        "BYTESCHEDULER_TUNING_CACHE": str(results),
        "BYTESCHEDULER_TIMELINE": str(tmp_path / "t.json"),
        "BYTESCHEDULER_LOG_LEVEL": "debug",
    }
    env["PYTHONPATH"] = ""  # the model of what was measured needs scipy
    outputs = make_job().run("tuned_worker.py", env=env)
    assert results.exists(), outputs
    (row,) = json.loads(results.read_text())["results"].values()
    assert row["partition"] <= row["credit"]
    assert row["step_s"] > 0.05
    (tuned,) = [output for output in outputs if "tuning: " in output]  # rank 0's
    changes = re.findall(r"partitions of (\d+) bytes and a credit of (\d+) from", tuned)
    assert len(changes) > 4
    merged = list(timeline.merge([tmp_path / "t-r0.json", tmp_path / "t-r1.json"]))
    decisions = [event["args"] for event in merged if event["ph"] == "i"]  # all of rank 0
    assert [(str(d["partition"]), str(d["credit"])) for d in decisions] == changes
    names = {row["name"] for row in timeline.summary(merged)["tensors"]}
    assert names >= {"a", "b", "c", "d", "e", "stop"}
    assert changes[-1] == (str(row["partition"]), str(row["credit"]))
