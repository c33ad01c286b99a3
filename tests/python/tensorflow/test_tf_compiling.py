"""The operations are compiled once for each TensorFlow, by a compiler that plays one here."""

import multiprocessing
import os
import pathlib
import stat
from typing import Dict

import pytest
from inline_snapshot import snapshot

pytest.importorskip("tensorflow")

from bytescheduler.tensorflow import build  # noqa: E402
from bytescheduler.tensorflow._library.compiling import (  # noqa: E402
    CannotCompile,
    Target,
    cached,
    compile_to,
)

TARGET = Target("2.15.1", ["-I/tf", "-DX=1"], ["-L/tf"])
# Writes what it was called with to the file behind -o, and a line for each call.
COMPILER = """#!/bin/sh
echo called >> {calls}
sleep 0.3
while [ "$1" != -o ]; do said="$said $1"; shift; done
echo "$said" > "$2"
exit {code}
"""


def compiler(folder: pathlib.Path, code: int = 0) -> Dict[str, str]:
    """Return variables that name a compiler, and a cache in `folder`."""
    program = folder / "compiler"
    program.write_text(COMPILER.format(calls=folder / "calls", code=code))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return {"CXX": str(program), "XDG_CACHE_HOME": str(folder / "cache")}


def calls(folder: pathlib.Path) -> int:
    return len((folder / "calls").read_text().splitlines())


def test_two_processes_at_once_compile_once(tmp_path: pathlib.Path) -> None:
    variables = compiler(tmp_path)
    children = [
        multiprocessing.get_context("fork").Process(target=cached, args=(TARGET, variables))
        for _ in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert calls(tmp_path) == 1
    library = cached(TARGET, {"XDG_CACHE_HOME": variables["XDG_CACHE_HOME"], "CXX": "none"})
    assert library.parent == tmp_path / "cache" / "bytescheduler"
    assert library.name.startswith("tf-2.15.1-")
    said = library.read_text()
    assert "-isystem/tf -DX=1" in said
    assert "operations.cc" in said
    assert sorted(p.suffix for p in library.parent.iterdir()) == ["", ".so"]


def test_another_tensorflow_has_a_library_of_its_own(tmp_path: pathlib.Path) -> None:
    variables = compiler(tmp_path)
    other = TARGET._replace(compile_flags=["-DX=2"])
    assert cached(TARGET, variables) != cached(other, variables)
    assert calls(tmp_path) == 2


def refusal(variables: Dict[str, str]) -> str:
    with pytest.raises(CannotCompile) as error:
        cached(TARGET, variables)
    return str(error.value)


def test_no_compiler_is_told_with_its_cure(tmp_path: pathlib.Path) -> None:
    cache = str(tmp_path)
    assert refusal({"CXX": "no-such-compiler", "XDG_CACHE_HOME": cache}) == snapshot(
        "CXX=no-such-compiler is no program; install a C++ compiler (on Debian or Ubuntu: apt-get "
        "install g++), or compile on a machine with the same TensorFlow by python -m "
        "bytescheduler.tensorflow.build --out FILE, and set BYTESCHEDULER_TF_OP=FILE here"
    )


def test_a_compiler_that_fails_leaves_nothing(tmp_path: pathlib.Path) -> None:
    text = refusal(compiler(tmp_path, code=3))
    assert "compiler ends with 3; set CXX to a compiler that takes C++17" in text
    assert [p.name for p in (tmp_path / "cache" / "bytescheduler").iterdir()] == ["lock"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    variables = compiler(tmp_path)
    (tmp_path / "cache").write_text("a file, where a folder should be")
    text = refusal(variables)
    assert text.startswith(f"{tmp_path}/cache/bytescheduler cannot be written (Not a directory); ")
    assert "set XDG_CACHE_HOME to a folder that can" in text


def test_the_command_compiles_to_a_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in compiler(tmp_path).items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "op.so"
    assert build.main(["--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert os.access(str(out), os.X_OK)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.main(["--out", str(out)]) == 1
    assert "CXX=no-such-compiler is no program" in capsys.readouterr().err
    with pytest.raises(CannotCompile, match="cannot be written"):
        compile_to(tmp_path / "no" / "op.so", TARGET, compiler(tmp_path))
