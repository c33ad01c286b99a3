"""Jobs of PyTorch, MXNet and TensorFlow train on one host at once, each on servers of its own."""

import pathlib
import re
import subprocess
import sys
import time
from typing import Dict

import job
import pytest

for framework in ("tensorflow", "torch", "mxnet"):
    pytest.importorskip(framework)

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "example"
LONG_S = 400.0
LAUNCH = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "1"]
SCRIPTS = {
    "torch": "pytorch/train_mnist.py --num-epochs 4 --target-accuracy 0.9",
    "mxnet": "image-classification/train_mnist.py --target-accuracy 0.9",
    "tensorflow": "tensorflow/train_digits.py --num-epochs 4 --target-accuracy 0.8",
}


def started(line: str, log: pathlib.Path) -> "subprocess.Popen[bytes]":
    script, *words = line.split()
    # The launcher ends its job by itself when it is late.
    command = [*LAUNCH, "--timeout", str(int(LONG_S)), "--", sys.executable, str(EXAMPLE / script)]
    with log.open("wb") as file:
        return subprocess.Popen(
            [*command, *words],
            env={**job.without_settings(), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


@pytest.mark.nightly
def test_jobs_of_three_frameworks_at_once_reach_their_targets(tmp_path: pathlib.Path) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in SCRIPTS}
    jobs = {name: started(line, logs[name]) for name, line in SCRIPTS.items()}
    deadline = time.monotonic() + LONG_S + 60.0
    codes: Dict[str, int] = {}
    try:
        for name, process in jobs.items():
            codes[name] = process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in jobs.values():
            process.terminate()
    said = {name: log.read_text(errors="replace") for name, log in logs.items()}
    assert codes == dict.fromkeys(SCRIPTS, 0), said
    for name in ("torch", "tensorflow"):
        digests = re.findall(r"weights (?:sha256 )?([0-9a-f]{64})", said[name])
        assert len(digests) == 2, said[name]
        assert len(set(digests)) == 1, said[name]
