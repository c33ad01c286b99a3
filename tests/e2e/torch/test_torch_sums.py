"""Jobs of PyTorch's workers without an optimizer."""

import pathlib
import sys
from typing import Callable

from job import WORKERS, Job
from launched import run

from bytescheduler import timeline
from bytescheduler._timeline.files import KEY_NAME

MakeJob = Callable[..., Job]
SCRIPT = "torch/sums.py"


def test_sums_broadcasts_and_objects(make_job: MakeJob) -> None:
    for output in make_job().run(SCRIPT):
        assert "all is well" in output


def test_under_torchrun_they_need_no_server_apart_and_each_process_writes_its_timelines(
    tmp_path: pathlib.Path,
) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    named = f"BYTESCHEDULER_TIMELINE={tmp_path / 't.json'}"
    done = run(["env", named, *torchrun, "--standalone", str(WORKERS / SCRIPT)])
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all is well") == 2
    written = sorted(tmp_path.iterdir())
    assert [path.name for path in written] == ["t-r0.json", "t-r1.json", "t-s0.json", "t-s1.json"]
    events = timeline.merge(written)
    assert "in place" in {e["args"]["name"] for e in events if e["name"] == KEY_NAME}
