"""A library of operations that was compiled for another TensorFlow."""

import os
import pathlib
import subprocess
import sys

import pytest

tf = pytest.importorskip("tensorflow")

# The Python of an environment with another TensorFlow; `make nightly-tensorflow` sets it.
OTHER = os.environ.get("BS_OTHER_TENSORFLOW", "")


@pytest.mark.nightly
@pytest.mark.skipif(not OTHER, reason="BS_OTHER_TENSORFLOW is not set")
def test_a_library_of_another_tensorflow_is_refused_with_its_cure(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "op.so"
    command = ["-m", "bytescheduler.tensorflow.build", "--out", str(file)]
    subprocess.run([OTHER, *command], check=True)
    done = subprocess.run(
        [sys.executable, "-c", "import bytescheduler.tensorflow"],
        env={**os.environ, "BYTESCHEDULER_TF_OP": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: bytescheduler.tensorflow needs its operations for TensorFlow "
        f"{tf.__version__}: BYTESCHEDULER_TF_OP={file} does not load ("
    ), done.stdout
    assert "make the file anew by python -m bytescheduler.tensorflow.build" in last
