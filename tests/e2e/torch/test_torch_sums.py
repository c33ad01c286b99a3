"""Jobs of PyTorch's workers without an optimizer."""

import sys
from typing import Callable

from job import WORKERS, Job
from launched import run

MakeJob = Callable[..., Job]
SCRIPT = "torch/sums.py"


def test_sums_broadcasts_and_objects(make_job: MakeJob) -> None:
    for output in make_job().run(SCRIPT):
        assert "all is well" in output


def test_under_torchrun_they_need_no_server_apart() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = run([*torchrun, "--standalone", str(WORKERS / SCRIPT)])
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all is well") == 2
