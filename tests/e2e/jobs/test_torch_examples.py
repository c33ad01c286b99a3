"""The examples with PyTorch: they learn, and all workers end with one model."""

import pathlib
import re
import subprocess
import sys

import job
import pytest

pytest.importorskip("torch")

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "example" / "pytorch"
LONG_S = 180.0
TWO_WORKERS = ("-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "1", "--")


def run(script: str, line: str, *launch: str) -> "subprocess.CompletedProcess[str]":
    launcher = [sys.executable, *launch] if launch else []
    return subprocess.run(
        [*launcher, sys.executable, str(EXAMPLE / script), *line.split()],
        env={**job.without_settings(), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )


SCRIPTS = [
    ("train_mnist.py", "--num-epochs 4 --target-accuracy 0.9"),
    ("gpt2_char.py", "--layers 2 --width 64 --steps 60 --every 20 --target-loss 3.4"),
    (
        "benchmark.py",
        "--model resnet50 --optimizer adamw --batch-size 2 --pixels 64 --steps 2 --warm-up 1",
    ),
]


@pytest.mark.parametrize(("script", "line"), SCRIPTS)
def test_two_workers_reach_the_target_with_the_same_weights(script: str, line: str) -> None:
    done = run(script, line, *TWO_WORKERS)
    said = done.stdout
    assert done.returncode == 0, said
    digests = re.findall(r"rank (\d): final .* weights sha256 ([0-9a-f]{64})", said)
    assert {rank for rank, _ in digests} == {"0", "1"}, said
    assert len({digest for _, digest in digests}) == 1, said
    joined = "[worker 0] bytescheduler: job of 2 workers and 1 server; a DistributedOptimizer "
    assert said.count(joined) == said.count("job of 2 workers") == 1, said
    assert said.count(" crosses the barrier: forward begins") == 1, said


def test_one_process_without_us_that_misses_its_target_fails() -> None:
    done = run("gpt2_char.py", "--no-bytescheduler --layers 1 --steps 1 --target-loss 1")
    assert done.returncode == 1, done.stdout
    assert "rank 0: above the target of 1" in done.stdout
