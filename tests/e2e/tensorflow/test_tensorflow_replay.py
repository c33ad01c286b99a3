"""The benchmark of steps with TensorFlow runs each arm, and its sums are right."""

import json
import os
import pathlib
import subprocess
import sys

import lab
import pytest
from job import HERE

tf = pytest.importorskip("tensorflow")
ROOT = HERE.parents[2]
# The lab lies where only the benchmark's processes see it, as in lab.py; they end with the first.
APART = ["unshare", "-nmpf", "--mount-proc", "--kill-child"]
APART += ["sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
OURS = ("barrier", "ours", "ours-direct")
# The fit of Keras 3 fails under a strategy of several processes.
STOCK = () if tf.__version__ >= "2.16" else ("mwms-ring", "mwms-auto", "mwms-ring-6")
ARMS = (*STOCK, *OURS)


@pytest.mark.nightly
def test_each_arm_of_the_smallest_row_uses_the_right_sums(tmp_path: pathlib.Path) -> None:
    lab.hosts_or_skip(lab.require)
    out = tmp_path / "out.json"
    line = "--framework tensorflow --models resnet50 --ratios 1 --iterations 6 --repeats 1"
    line += " --timeout 120"  # a job has more, as TensorFlow takes long to start
    command = [*lab.one_processor(), *APART, sys.executable, "-m", "benchmarks.jobs.replay"]
    command += [*line.split(), "--arms", ",".join(ARMS), "--out", str(out)]
    env = {**os.environ, **lab.WITH_PATH, "PYTHONPATH": str(ROOT)}
    # A worker with a wrong sum ends the run.
    subprocess.run(command, env=env, cwd=str(ROOT), timeout=2400, check=True)
    (cell,) = json.loads(out.read_text())["cells"]
    assert set(cell["step_s"]) == set(ARMS)
    assert all(seconds > cell["ideal_s"] / 2 for seconds in cell["step_s"].values())
    # Each arm carries one model each way and step, headers included.
    assert all(1.0 < load < 1.2 for (load,) in cell["link_models"].values())
