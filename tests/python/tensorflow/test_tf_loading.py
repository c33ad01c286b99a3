"""A file that does not load, and a process that is alone."""

import os
import pathlib
import subprocess
import sys

import pytest
from inline_snapshot import snapshot

pytest.importorskip("tensorflow")

import tensorflow as tf  # noqa: E402

import bytescheduler.tensorflow as bps  # noqa: E402
from bytescheduler.errors import ConfigError  # noqa: E402


def test_a_file_of_another_kind_is_refused_with_its_cure(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "op.so"
    file.write_text("no library")
    done = subprocess.run(
        [sys.executable, "-c", "import bytescheduler.tensorflow"],
        env={**os.environ, "BYTESCHEDULER_TF_OP": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    last = done.stdout.strip().splitlines()[-1].replace(str(file), "FILE")
    assert last.replace(tf.__version__, "2.X") == snapshot(
        "ImportError: bytescheduler.tensorflow needs its operations for TensorFlow 2.X: "
        "BYTESCHEDULER_TF_OP=FILE does not load (FILE: file too short); make the file anew by "
        "python -m bytescheduler.tensorflow.build --out FILE, or unset BYTESCHEDULER_TF_OP"
    )


def test_calls_before_init_are_refused() -> None:
    with pytest.raises(ValueError, match="call init\\(\\) first"):
        bps.push_pull(1.0)


def test_a_process_alone_keeps_its_values() -> None:
    bps.init()
    try:
        assert (bps.rank(), bps.size(), bps.local_rank(), bps.local_size()) == (0, 1, 0, 1)
        value = tf.Variable([1.0, 2.0])
        assert bps.push_pull(value).numpy().tolist() == [1.0, 2.0]
        assert bps.broadcast(value).numpy().tolist() == [1.0, 2.0]
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = tf.reduce_sum(value * value)
        assert tape.gradient(loss, [value])[0].numpy().tolist() == [2.0, 4.0]
        assert bps.allgather_object("a") == ["a"]
        with pytest.raises(ConfigError, match="root_rank 1: want 0 to 0"):
            bps.broadcast(value, 1)
    finally:
        bps.shutdown()
