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
CLI = [sys.executable, "-m", "bytescheduler.cli"]


def test_a_job_is_recorded_and_advised_by_its_parameters_names(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.json"
    script = [sys.executable, str(WORKERS / SCRIPT), "8"]
    done = run([*CLI, "launch", "--local", "-q", "--record", str(path), "--", *script])
    assert done.returncode == 0, done.stdout
    forward = re.findall(r"FORWARD (.*)", done.stdout)[0].split()
    assert [layer.name for layer in profile.read(path)] == forward
    advised = run([*CLI, "advise", str(path), "--rate", "100mbit", "--json"])
    assert advised.returncode == 0, advised.stdout
    assert json.loads(advised.stdout)["layers"] == len(forward)


def test_a_timeline_has_them_and_the_order_of_calls_is_measured(make_job: MakeJob) -> None:
    log = {"BYTESCHEDULER_PRIORITY": "measured", "BYTESCHEDULER_LOG_LEVEL": "debug"}
    job = make_job(env={**log, "BYTESCHEDULER_TIMELINE": "t.json"})
    outputs = job.run(SCRIPT, "10")
    events = timeline.merge([job.folder / "t-r0.json"])
    names = {e["args"]["name"] for e in events if e["name"] == KEY_NAME}
    forward = re.findall(r"FORWARD (.*)", outputs[0])[0].split()
    assert set(forward) < names
    # The engine sees the calls of all parameters, and of nothing else.
    assert f"priorities stay: {len(forward)} tensors become ready" in "".join(outputs)
