"""Libraries of operations: of another TensorFlow, and of two processes that import at once."""

import os
import pathlib
import shutil
import stat
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


@pytest.mark.nightly
def test_two_first_imports_at_once_compile_once(tmp_path: pathlib.Path) -> None:
    real = shutil.which("g++") or shutil.which("c++")
    assert real is not None
    calls, compiler = tmp_path / "calls", tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho called >> {calls}\nexec {real} "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IEXEC)
    variables = {name: value for name, value in os.environ.items() if name != "BYTESCHEDULER_TF_OP"}
    imports = [
        subprocess.Popen(
            [sys.executable, "-c", "import bytescheduler.tensorflow as b; print(b.initialized())"],
            env={**variables, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": str(compiler)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in imports] == ["False\n"] * 2
    assert [process.returncode for process in imports] == [0, 0]
    assert calls.read_text() == "called\n"
    (library,) = (tmp_path / "cache" / "bytescheduler").glob("*.so")
    assert library.name.startswith(f"tf-{tf.__version__}-")
