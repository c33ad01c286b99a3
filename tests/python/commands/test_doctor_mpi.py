"""`bytescheduler doctor` on MPI libraries, whose loading is played."""

import pathlib
import re
from typing import Callable, Dict, Mapping

import pytest
from inline_snapshot import snapshot

from bytescheduler._doctor import mpi
from bytescheduler._doctor.probe import Import

ROOT = pathlib.Path(__file__).resolve().parents[3]
ABSENT = "OSError: {}: cannot open shared object file: No such file or directory"
Play = Callable[..., None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Play:
    """Return what plays a host with these libraries, by name, and nothing beside a launcher."""

    def host(**outcomes: Import) -> None:
        names = {name.replace("_so_", ".so."): outcome for name, outcome in outcomes.items()}

        def imports(modules: Mapping[str, str], limit_s: float) -> "Dict[str, Import]":
            assert limit_s == 5
            (about,) = modules.values()
            file = re.search(r"CDLL\('([^']+)'\)", about)
            assert file is not None
            absent = Import("broken", ABSENT.format(file.group(1)))
            return {"ctypes": names.get(pathlib.Path(file.group(1)).name, absent)}

        monkeypatch.setattr(mpi, "imports", imports)
        monkeypatch.setattr(mpi, "_folders", lambda: [str(tmp_path)])

    return host


def test_each_library_has_version_and_abi(play: Play) -> None:
    play(
        libmpi_so_40=Import("version", "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"),
        libmpi_abi_so_1=Import("version", "MPICH Version:      5.0.2"),
    )
    assert [(finding.level, finding.text) for finding in mpi.check(5)] == snapshot(
        [
            ("ok", "Open MPI v4.1.4, ABI of Open MPI, for Open MPI's mpirun (libmpi.so.40)"),
            ("ok", "MPICH Version: 5.0.2, ABI of MPI-5, for MPICH's mpirun (libmpi_abi.so.1)"),
        ]
    )


def test_no_library_is_no_problem(play: Play) -> None:
    play()
    (finding,) = mpi.check(5)
    assert finding.level == "ok"
    assert finding.text == snapshot(
        "no MPI library is found; only BYTESCHEDULER_COMM=mpi needs one"
    )


def test_a_library_that_lacks_something_is_a_problem(play: Play) -> None:
    missing = "OSError: libfabric.so.1: cannot open shared object file: No such file or directory"
    play(libmpi_so_12=Import("broken", missing))
    (finding,) = mpi.check(5)
    assert finding.level == "problem"
    assert "libfabric.so.1" in finding.text


def test_a_library_beside_the_launcher_counts(play: Play, tmp_path: pathlib.Path) -> None:
    (tmp_path / "libmpi.so.12").touch()
    play(libmpi_so_12=Import("version", "MPICH Version: 5.0.2"))
    (finding,) = mpi.check(5)
    assert str(tmp_path / "libmpi.so.12") in finding.text


def test_the_engine_looks_for_the_same_names() -> None:
    table = (ROOT / "src/backend/collective/mpi/mpi_abi.cc").read_text()
    assert sorted(re.findall(r'"(lib[\w.]+)"', table)) == sorted(
        library.file for library in mpi.LIBRARIES
    )


def test_this_python_can_ask_a_library() -> None:
    """Each library is loaded by a process of its own."""
    for finding in mpi.check(60):
        assert finding.level in ("ok", "problem"), finding
