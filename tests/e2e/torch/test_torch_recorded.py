"""Jobs of PyTorch whose steps are recorded: by their parameters' names, in the order of forward."""

import json
import pathlib
import re
import sys
from typing import Callable

from job import WORKERS, Job
from launched import run

from bytescheduler import timeline
from bytescheduler._advise import profile
from bytescheduler._timeline.files import KEY_NAME

MakeJob = Callable[..., Job]
SCRIPT = "torch/recorded.py"
LEARNT = 3  # steps, after which the tensor is known that a step needs first
CLI = [sys.executable, "-m", "bytescheduler.cli"]


def test_a_job_is_recorded_and_advised_by_its_parameters_names(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.json"
    script = [sys.executable, str(WORKERS / SCRIPT), "8"]
    done = run([*CLI, "launch", "--local", "-q", "--record", str(path), "--", *script])
    assert done.returncode == 0, done.stdout
    forward = re.findall(r"FORWARD (.*)", done.stdout)[0].split()
    recorded = profile.read(path)
    assert recorded.framework == "torch"
    assert [layer.name for layer in recorded.layers] == forward
    advised = run([*CLI, "advise", str(path), "--rate", "100mbit", "--json"])
    assert advised.returncode == 0, advised.stdout
    advice = json.loads(advised.stdout)
    assert advice["layers"] == len(forward)
    assert {"ddp", "ddp_best", "ours"} < advice["step_s"].keys()


def test_a_timeline_has_them_and_the_order_of_calls_is_measured(make_job: MakeJob) -> None:
    log = {"BYTESCHEDULER_PRIORITY": "measured", "BYTESCHEDULER_LOG_LEVEL": "debug"}
    job = make_job(env={**log, "BYTESCHEDULER_TIMELINE": "t.json"})
    outputs = job.run(SCRIPT, "10")
    events = list(timeline.merge([job.folder / "t-r0.json"]))
    names = {e["args"]["name"] for e in events if e["name"] == KEY_NAME}
    forward = re.findall(r"FORWARD (.*)", outputs[0])[0].split()
    assert set(forward) < names
    # What workers agree on stands apart, and hides no lost time.
    fronts = [e for e in events if e.get("cat") == "front"]
    assert fronts
    assert {e["name"] for e in fronts} <= set(forward)
    found = timeline.summary(events)
    assert {row["name"] for row in found["tensors"]} <= set(forward)
    assert "tally 1 of all gradients" in {row["name"] for row in found["internal"]}
    late = [row for row in found["steps"] if row["step"] > LEARNT]
    assert late
    assert all(row["lost_s"] is not None for row in late)
    # The engine sees the calls of all parameters, and of nothing else.
    assert f"priorities stay: {len(forward)} tensors become ready" in "".join(outputs)
