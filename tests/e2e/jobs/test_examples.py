"""The examples as their README starts them: they learn, and all workers end with one model."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "example" / "image-classification"
LONG_S = 180.0


def run_local(
    cwd: pathlib.Path, script: str, *arguments: str, secret: str = ""
) -> "subprocess.CompletedProcess[str]":
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "BYTESCHEDULER_"))},
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYTHON": sys.executable,
        "SCRIPT": script,
        "SERVERS": "2",
        "OMP_NUM_THREADS": "1",
        "BYTESCHEDULER_SECRET_FILE": secret,
    }
    return subprocess.run(
        [str(EXAMPLE / "run_local.sh"), *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )


@pytest.mark.parametrize(
    ("script", "network"), [("train_mnist.py", "mlp"), ("train_gluon.py", "lenet")]
)
def test_two_workers_learn_digits_and_hold_the_same_weights(
    tmp_path: pathlib.Path, script: str, network: str
) -> None:
    options = ("--network", network, "--num-epochs", "4", "--target-accuracy", "0.9")
    secret = tmp_path / "secret"
    secret.write_text("a secret of this test\n")
    secret.chmod(0o600)
    # One without a secret and one with it.
    given = str(secret) if script == "train_gluon.py" else ""
    done = run_local(tmp_path, script, *options, secret=given)
    said = done.stdout
    assert done.returncode == 0, said
    for rank in (0, 1):
        for epoch in range(4):
            line = rf"rank {rank} epoch {epoch}: \d+ samples/s, validation accuracy [01]\.\d{{4}}"
            assert re.search(line, said), said
    digests = re.findall(r"rank (\d): final .* weights sha256 ([0-9a-f]{64})", said)
    assert {rank for rank, _ in digests} == {"0", "1"}, said
    assert len({digest for _, digest in digests}) == 1, said
    assert "native back end carries the bytes (2 workers, 2 servers" in said


def test_a_run_below_its_target_accuracy_fails(tmp_path: pathlib.Path) -> None:
    options = ("--network", "mlp", "--num-epochs", "1", "--target-accuracy", "1")
    done = run_local(tmp_path, "train_gluon.py", *options)
    assert done.returncode == 1, done.stdout
    assert "below the target of 1.0000" in done.stdout
