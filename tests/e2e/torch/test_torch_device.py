"""Jobs whose tensors are on the double of a device, which copies late; no GPU takes part."""

import os
import pathlib
import sys

import torch
from launched import run

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "gpu" / "run.sh"


def test_the_script_for_machines_with_a_gpu_runs_on_the_double(tmp_path: pathlib.Path) -> None:
    env = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    done = run([str(SCRIPT), "--double", "--installed"], env)
    assert "all is well, on the double of a device" in done.stdout
    sums = "NCCL: all is well" if os.environ.get("BS_FAKE_GPU_FOLDER") else "NCCL did not run"
    assert sums in done.stdout
    if not torch.cuda.is_available():
        assert "nothing ran on a GPU" in run([str(SCRIPT), "--installed"], env, code=2).stdout
