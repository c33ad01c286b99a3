"""The example with TensorFlow: it learns, all workers end with one model, and it is recorded."""

import json
import pathlib
import re
import subprocess
import sys

import job
import pytest
from click_runner import runner

from bytescheduler import cli
from bytescheduler._advise import profile

pytest.importorskip("tensorflow")

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "example" / "tensorflow" / "train_digits.py"
LONG_S = 180.0


def trained(loop: str, *options: str) -> str:
    """Train two workers to their target and the same weights; return what they print."""
    launcher = ["-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "1", *options, "--"]
    line = ["--loop", loop, "--num-epochs", "3", "--target-accuracy", "0.8"]
    done = subprocess.run(
        [sys.executable, *launcher, sys.executable, str(SCRIPT), *line],
        env={**job.without_settings(), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    digests = re.findall(r"rank (\d): validation .* weights ([0-9a-f]{64})", done.stdout)
    assert {rank for rank, _ in digests} == {"0", "1"}, done.stdout
    assert len({digest for _, digest in digests}) == 1, done.stdout
    return done.stdout


@pytest.mark.nightly
def test_two_workers_reach_the_target_by_fit() -> None:
    trained("fit")


def test_two_workers_reach_the_target_with_the_same_weights_and_are_recorded(
    tmp_path: pathlib.Path,
) -> None:
    path = str(tmp_path / "model.json")
    output = trained("tape", "--record", path)
    assert "bytescheduler: job of 2 workers and 1 server\n" in output
    recorded = profile.read(path)
    assert recorded.framework == "tensorflow"
    layers = {layer.name.partition(":")[0]: layer.size_bytes for layer in recorded.layers}
    assert layers.pop("conv2d/kernel") == 4 * 3 * 3 * 16
    kinds = ("conv2d/bias", "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias")
    assert set(layers) == set(kinds)
    result = runner().invoke(cli._cli, ["advise", path, "--rate", "100mbit", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["compared_with"] == "mirrored"
