"""Files of operations: no library, of another TensorFlow, made by two at once; a process alone."""

import importlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import types

import pytest
from inline_snapshot import snapshot

pytest.importorskip("tensorflow")

import tensorflow as tf  # noqa: E402

import bytescheduler.tensorflow as bps  # noqa: E402
from bytescheduler.errors import ConfigError, UsageError  # noqa: E402
from bytescheduler.tensorflow._job.job import current  # noqa: E402
from bytescheduler.tensorflow._library import compiling, loading  # noqa: E402

# The Python of an environment with another TensorFlow; `make nightly-tensorflow` sets it.
OTHER = os.environ.get("BS_OTHER_TENSORFLOW", "")


def refusal_of(file: pathlib.Path) -> str:
    """Return the last line that an import with this file of operations prints."""
    done = subprocess.run(
        [sys.executable, "-c", "import bytescheduler.tensorflow"],
        env={**os.environ, "BYTESCHEDULER_TF_OP": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    return done.stdout.strip().splitlines()[-1]


def test_a_file_of_another_kind_is_refused_with_its_cure(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "op.so"
    file.write_text("no library")
    last = refusal_of(file).replace(str(file), "FILE")
    assert last.replace(tf.__version__, "2.X") == snapshot(
        "ImportError: bytescheduler.tensorflow needs its operations for TensorFlow 2.X: "
        "BYTESCHEDULER_TF_OP=FILE does not load (FILE: file too short); make the file anew by "
        "python -m bytescheduler.tensorflow.build --out FILE, or unset BYTESCHEDULER_TF_OP"
    )


def test_an_import_without_a_compiler_or_a_folder_is_refused_with_its_cure(
    tmp_path: pathlib.Path,
) -> None:
    script = """
import os
for variable, value in (("CXX", "none"), ("XDG_CACHE_HOME", __file__)):
    os.environ[variable] = value
    try:
        import bytescheduler.tensorflow
    except ImportError as error:
        print("refused:", error)
"""
    (tmp_path / "script.py").write_text(script)
    variables = {name: value for name, value in os.environ.items() if name != "BYTESCHEDULER_TF_OP"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        env={**variables, "XDG_CACHE_HOME": str(tmp_path / "empty")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    refusals = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert len(refusals) == 2, done.stdout
    start = (
        f"refused: bytescheduler.tensorflow needs its operations for TensorFlow {tf.__version__}: "
    )
    assert refusals[0].startswith(f"{start}CXX=none is no program; install a C++ compiler"), (
        refusals
    )
    folder = tmp_path / "script.py" / "bytescheduler"
    assert refusals[1].startswith(f"{start}{folder} cannot be written (Not a directory); "), (
        refusals
    )
    assert "set XDG_CACHE_HOME to a folder that can" in refusals[1]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("bs_tf_connect() { return 0; }", "undefined symbol: bs_tf_join"),
        ("bs_tf_join(void*, void*, long, char* e) { return e[4] = 'X', e[5] = 0, 1; }", "(X)"),
    ],
)
def test_a_library_for_another_version_is_refused_with_its_cure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, function: str, reason: str
) -> None:
    file = tmp_path / "op.so"
    line = [*compiling.compiler_of(os.environ), *("-shared", "-fPIC", "-xc++", "-", "-o")]
    source = f'extern "C" int {function}'
    subprocess.run([*line, str(file)], input=source, check=True, text=True)
    monkeypatch.setenv("BYTESCHEDULER_TF_OP", str(file))
    with pytest.raises(ImportError, match="make the file anew by python -m") as error:
        loading._library.__wrapped__()
    assert reason in str(error.value)


def test_the_command_that_compiles_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (b"python\0-m\0", b"python\0-m"):
        line = words + b"bytescheduler.tensorflow.build\0"
        monkeypatch.setattr(pathlib.Path, "read_bytes", lambda _, line=line: line)
        assert loading.is_building()
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda _: b"python\0train.py\0")
    assert not loading.is_building()


def test_an_older_tensorflow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf, "__version__", "2.14.1")
    with pytest.raises(ImportError, match="TensorFlow 2.14.1: .* needs 2.15 or newer; install"):
        importlib.reload(bps)


def test_an_optimizer_of_the_script_on_another_backend_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mine(tf.keras.optimizers.SGD):  # type: ignore[misc]
        pass

    keras = types.ModuleType("keras")
    keras.config = types.SimpleNamespace(backend=lambda: "jax")  # type: ignore[attr-defined]
    keras.optimizers = tf.keras.optimizers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keras", keras)
    with pytest.raises(UsageError, match="Keras runs on jax"):
        bps.DistributedOptimizer(Mine())


def test_calls_before_init_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current(), "_left", False)  # by a test before this
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


@pytest.mark.nightly
@pytest.mark.skipif(not OTHER, reason="BS_OTHER_TENSORFLOW is not set")
def test_a_library_of_another_tensorflow_is_refused_with_its_cure(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "op.so"
    command = ["-m", "bytescheduler.tensorflow.build", "--out", str(file)]
    subprocess.run([OTHER, *command], check=True)
    last = refusal_of(file)
    assert last.startswith(
        f"ImportError: bytescheduler.tensorflow needs its operations for TensorFlow "
        f"{tf.__version__}: BYTESCHEDULER_TF_OP={file} does not load ("
    ), last
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
