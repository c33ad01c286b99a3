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
from bytescheduler.tensorflow._library import compiling  # noqa: E402
from bytescheduler.tensorflow._library.compiling import (  # noqa: E402
    CannotCompile,
    Target,
    cached,
    compile_to,
    library_folder,
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


def test_a_cache_that_cannot_be_read_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = compiler(tmp_path)

    def refuse(path: pathlib.Path) -> bool:
        if str(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied")
        return os.path.isfile(str(path))

    monkeypatch.setattr(pathlib.Path, "is_file", refuse)
    assert "bytescheduler cannot be written (Permission denied); " in refusal(variables)


def test_a_package_without_its_header_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "SOURCE", tmp_path / "absent.cc")
    text = refusal(compiler(tmp_path))
    assert text.endswith("cannot be read (No such file or directory); install bytescheduler again")


@pytest.mark.parametrize("kind", ["folder", "library"])
def test_a_library_that_other_users_can_write_is_refused(tmp_path: pathlib.Path, kind: str) -> None:
    variables = compiler(tmp_path)
    library = cached(TARGET, variables)
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    (library.parent if kind == "folder" else library).chmod(0o777)
    assert "other users can write it; remove it, or " in refusal(variables)


def test_a_library_of_another_user_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = compiler(tmp_path)
    library = cached(TARGET, variables)
    stranger = 12345 if os.geteuid() == 0 else 0
    if stranger:
        os.chown(str(library), stranger, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to another user" in refusal(variables)


def test_a_cache_is_an_absolute_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    ours = pathlib.Path("/home/me/.cache/bytescheduler")
    assert library_folder({"XDG_CACHE_HOME": "cache"}) == ours
    assert library_folder({}) == ours
    monkeypatch.setenv("HOME", "relative")
    assert "there is no home for this user; set XDG_CACHE_HOME" in refusal({})


def test_a_compiler_has_arguments(tmp_path: pathlib.Path) -> None:
    variables = compiler(tmp_path)
    variables["CXX"] += " -m64 '-DNAME=a b'"
    assert cached(TARGET, variables).read_text().startswith(" -m64 -DNAME=a b -shared")
    assert "is no program" in refusal({**variables, "CXX": "'", "XDG_CACHE_HOME": str(tmp_path)})


def test_a_compiler_that_does_not_start_is_told(tmp_path: pathlib.Path) -> None:
    variables = compiler(tmp_path)
    pathlib.Path(variables["CXX"]).write_bytes(b"\x7fELF no program")
    assert "compiler does not start (Exec format error); set CXX to" in refusal(variables)


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
    for name, value in compiler(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert build.main(["--out", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err
    with pytest.raises(CannotCompile, match="cannot be written"):
        compile_to(tmp_path / "no" / "op.so", TARGET, compiler(tmp_path))
