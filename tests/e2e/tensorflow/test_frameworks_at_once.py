"""Jobs of PyTorch, MXNet and TensorFlow on one host: at once, and one after the other."""

import collections
import pathlib
import re
import subprocess
import sys
import time
from typing import Callable, Dict

import job
import pytest

# A folder of tests is called mxnet too.
for framework in ("tensorflow", "torch", "mxnet.ndarray"):
    pytest.importorskip(framework)

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "example"
TOGETHER = str(job.WORKERS / "tensorflow" / "epochs_together.py")
LONG_S = 400.0
WORKERS, EPOCHS = 2, 4
LAUNCH = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", str(WORKERS), "-s", "1"]
SCRIPTS = {
    "torch": "pytorch/train_mnist.py --num-epochs 4 --target-accuracy 0.9",
    "mxnet": "image-classification/train_mnist.py --target-accuracy 0.9",
    "tensorflow": "tensorflow/train_digits.py --loop tape --num-epochs 4 --target-accuracy 0.8",
}


def started(name: str, log: pathlib.Path, epochs: pathlib.Path) -> "subprocess.Popen[bytes]":
    """Start a job, each of whose epochs ends when those of the other jobs do."""
    script, *words = SCRIPTS[name].split()
    # The launcher ends its job by itself when it is late.
    command = [*LAUNCH, "--timeout", str(int(LONG_S)), "--", sys.executable, TOGETHER, str(epochs)]
    command += [name, str(WORKERS * len(SCRIPTS)), str(EPOCHS), str(EXAMPLE / script)]
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
    epochs = tmp_path / "epochs"
    jobs = {name: started(name, log, epochs) for name, log in logs.items()}
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
    # All jobs make an epoch after each of them has made the one before.
    ends = [tuple(line.split()) for line in epochs.read_text().splitlines()]
    assert [int(epoch) for _, epoch in ends] == sorted(int(epoch) for _, epoch in ends)
    each = {(name, str(epoch)): WORKERS for name in SCRIPTS for epoch in range(EPOCHS)}
    assert collections.Counter(ends) == each
    for name in ("torch", "tensorflow"):
        digests = re.findall(r"weights (?:sha256 )?([0-9a-f]{64})", said[name])
        assert len(digests) == 2, said[name]
        assert len(set(digests)) == 1, said[name]


@pytest.mark.nightly
def test_jobs_of_three_frameworks_have_the_same_ports_one_after_the_other(
    make_job: Callable[..., job.Job], free_port: Callable[[], int]
) -> None:
    ports = [free_port(), free_port()]
    make_job(ports=ports).run("torch/sums.py")
    make_job(ports=ports).run("cases/readme_line.py", "")
    make_job(ports=ports).run("tensorflow/first_mean.py")
