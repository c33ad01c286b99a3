"""Jobs whose sums MPI makes, under mpiexec: of PyTorch, of MXNet, and of the engine alone.

`make python` has the MPICH of pip, with its two ABIs; `make nightly-launchers` has more libraries.
"""

import os
import pathlib
import re
import shutil
import sys
from typing import Callable, List, NamedTuple, Optional, Sequence, Set

import numpy as np
import pytest
from direct_job import Direct
from job import WORKERS
from launched import needs_torch, require, run
from trained import Weights, assert_equal

# The folder of MPICH.
MPICH = os.environ.get("BS_MPICH", "")
OPEN_MPI_5 = os.environ.get("BS_OPEN_MPI", "")
needs_mpich = pytest.mark.skipif(not MPICH, reason="BS_MPICH is not set; make python sets it")
nightly = pytest.mark.nightly

ENGINE = "direct/mpi_worker.py"
TORCH = "torch/mpi_steps.py"
MXNET = "direct/three_ways.py"
# mpiexec ends all processes where a signal kills a child of its own.
SURVIVES = ("sh", "-c", """trap '' USR1; "$@"; true""", "sh")


class Mpi(NamedTuple):
    """A library and how its jobs start.

    Parameters
    ----------
    mpiexec : list of str
        The command, without the number of processes.
    library : str
        The end of the library's path.
    """

    mpiexec: List[str]
    library: str

    def job(self, size: int, script: str, *arguments: str, wrapper: Sequence[str] = ()) -> str:
        """Return what the job prints; `wrapper` stands before the command of each process."""
        require(self.mpiexec[0])
        # `run` takes our settings out of the environment.
        settings = ["env", "BYTESCHEDULER_COMM=mpi", "BYTESCHEDULER_LOG_LEVEL=info"]
        command = [*self.mpiexec, "-n", str(size), *settings, *wrapper, sys.executable]
        command += [str(WORKERS / script), *arguments]
        text = run(command, {**os.environ, "OMP_NUM_THREADS": "1"}).stdout
        found: List[str] = re.findall(r"MPI sums dense tensors of floats: .* \((\S+)\)", text)
        assert all(file.endswith(self.library) for file in found), text
        assert found, text
        return text


def open_mpi(mpiexec: str) -> Mpi:
    as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return Mpi([mpiexec, "--oversubscribe", *as_root], "libmpi.so.40")


def mpich(folder: pathlib.Path, library: str) -> Mpi:
    # It else ends all processes where one is lost, before their errors are out.
    return Mpi([str(folder / "bin" / "mpiexec"), "-disable-auto-cleanup"], library)


@pytest.fixture
def own_abi() -> Mpi:
    """Return MPICH with the library of its own ABI."""
    return mpich(pathlib.Path(MPICH), "libmpi.so.12")


@pytest.fixture(scope="module")
def standard_abi(tmp_path_factory: pytest.TempPathFactory) -> Mpi:
    """Return a copy of MPICH that has only the library with the ABI of MPI 5."""
    folder = tmp_path_factory.mktemp("mpich") / "mpich"
    shutil.copytree(MPICH, folder, symlinks=True, ignore=shutil.ignore_patterns("libmpi.so*"))
    return mpich(folder, "libmpi_abi.so.1")


MORE = pytest.mark.parametrize(
    "more",
    [
        mpich(pathlib.Path(MPICH), "libmpi.so.12"),
        open_mpi(str(pathlib.Path(OPEN_MPI_5 or ".") / "bin" / "mpiexec")),
        open_mpi("mpirun.openmpi"),
        Mpi(["mpiexec.hydra", "-disable-auto-cleanup"], "libmpich.so.12"),
    ],
    ids=["MPICH 5", "Open MPI 5", "Debian's Open MPI", "Debian's MPICH"],
)


def hashes(text: str, size: int, comm: str) -> "Set[str]":
    found: List[str] = re.findall(rf"{comm}, rank \d of {size}: (\w+)", text)
    assert len(found) == size, text
    return set(found)


@pytest.fixture
def direct(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> "Callable[..., str]":
    """Return what runs two workers without MPI, by variables alone, and returns what they print."""

    def run_direct(*script: str) -> str:
        folder = tmp_path / "direct job"
        folder.mkdir()
        job = Direct(folder, free_port(), 2, BYTESCHEDULER_COMM="direct")
        try:
            job.start(*script)
            assert job.codes() == [0, 0], job.all_said()
        finally:
            job.close()
        return job.all_said()

    return run_direct


def check_torch(mpi: Mpi, size: int, direct: "Optional[Callable[..., str]]" = None) -> None:
    """Check that all workers have the same weights, and those of a direct job."""
    found = hashes(mpi.job(size, TORCH), size, "mpi")
    if direct is not None:
        found |= hashes(direct(TORCH), size, "direct")
    assert len(found) == 1, found


def weights(file: pathlib.Path, size: int) -> "List[Weights]":
    return [dict(np.load(f"{file}-{rank}.npz")) for rank in range(size)]


def check_mxnet(
    mpi: Mpi, folder: pathlib.Path, size: int, direct: "Optional[Callable[..., str]]" = None
) -> None:
    """Check as `check_torch` does."""
    mpi.job(size, MXNET, str(folder / "mpi"))
    (first, *more) = weights(folder / "mpi", size)
    if direct is not None:
        direct(MXNET, str(folder / "direct"))
        more += weights(folder / "direct", size)
    for other in more:
        assert_equal(first, other)


def check_engine(mpi: Mpi, size: int, *arguments: str) -> None:
    """Check that all ranks have the same sums, and that MPI made them, but not the coded one."""
    text = mpi.job(size, ENGINE, "5", *arguments)
    found = re.findall(rf"sums of rank \d of {size}: (\w+, \d+ operations)", text)
    assert len(found) == size, text
    assert len(set(found)) == 1, text
    assert found[0].endswith(", 6 operations"), text  # five steps and whole numbers


@needs_mpich
@needs_torch
def test_weights_of_pytorch_equal_a_direct_job(own_abi: Mpi, direct: "Callable[..., str]") -> None:
    check_torch(own_abi, 2, direct)


@needs_mpich
@needs_torch
def test_three_workers_of_pytorch_have_the_same_weights(standard_abi: Mpi) -> None:
    check_torch(standard_abi, 3)


@needs_mpich
@pytest.mark.parametrize("abi", ["own_abi", "standard_abi"])
def test_weights_of_mxnet_equal_a_direct_job(
    request: pytest.FixtureRequest,
    abi: str,
    tmp_path: pathlib.Path,
    direct: "Callable[..., str]",
) -> None:
    check_mxnet(request.getfixturevalue(abi), tmp_path, 2, direct)


@needs_mpich
def test_four_workers_have_the_same_sums(standard_abi: Mpi) -> None:
    check_engine(standard_abi, 4)


@nightly
@MORE
@needs_torch
@pytest.mark.parametrize("size", [2, 3, 4])
def test_pytorch_has_the_same_weights(more: Mpi, size: int, direct: "Callable[..., str]") -> None:
    check_torch(more, size, direct if size == 2 else None)


@nightly
@MORE
@pytest.mark.parametrize("size", [2, 3, 4])
def test_mxnet_has_the_same_weights(
    more: Mpi, size: int, tmp_path: pathlib.Path, direct: "Callable[..., str]"
) -> None:
    check_mxnet(more, tmp_path, size, direct if size == 2 else None)


@nightly
@MORE
def test_other_libraries_sum_alike(more: Mpi) -> None:
    check_engine(more, 3)


@needs_mpich
def test_mpi_that_the_script_has_initialised_stays(own_abi: Mpi) -> None:
    check_engine(own_abi, 2, str(pathlib.Path(MPICH) / "lib" / "libmpi.so.12"))


@needs_mpich
@pytest.mark.parametrize("when", ["lost", "inside"])
def test_a_lost_worker_is_named_by_all(standard_abi: Mpi, when: str) -> None:
    """`inside`: MPI has begun a sum on all ranks, which never ends."""
    text = standard_abi.job(3, ENGINE, when, wrapper=SURVIVES)
    assert text.count("bytescheduler.errors.PeerLost: lost worker 1") == 2, text


@needs_mpich
@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (
            "sizes",
            "key 7: worker 1 has float32 of 200004 bytes, worker 0 declared float32 of 200000",
        ),
        ("order", "after 3 s still waiting for worker [01]"),
        (
            "compression",
            "key=7 round=1: worker 0 is not compressed, worker 1 is compressed to bf16 from the "
            "next round on; set gradient compression alike on all workers",
        ),
    ],
)
def test_another_sum_on_a_rank_is_an_error_of_all(
    standard_abi: Mpi, mistake: str, sentence: str
) -> None:
    found = errors(standard_abi.job(2, ENGINE, mistake, wrapper=SURVIVES))
    assert len(found) == 2, found
    for error in found:
        assert re.search(sentence, error), found


@pytest.fixture
def failed(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> "Callable[..., str]":
    """Return what starts two workers by variables alone, and returns their errors."""

    def start(**settings: str) -> str:
        job = Direct(tmp_path, free_port(), 2, BYTESCHEDULER_COMM="mpi", **settings)
        try:
            job.start("direct/mpi_worker.py", "1")
            assert job.codes() == [1, 1], job.all_said()
        finally:
            job.close()
        return job.all_said()

    return start


def errors(text: str) -> List[str]:
    """Return the errors of the workers, each of which ends with a sentence."""
    return re.findall(r"^bytescheduler\.errors\.\w+: (.*)", text, re.M)


def test_mpi_needs_mpirun(failed: "Callable[..., str]") -> None:
    (first, second) = errors(failed())
    assert "start it with mpirun -n 2, or set BYTESCHEDULER_COMM=direct" in first
    assert first == second


def test_a_library_that_cannot_be_used_is_named_by_all(
    failed: "Callable[..., str]", tmp_path: pathlib.Path
) -> None:
    (tmp_path / "libmpi.so.12").write_text("no library")
    found = errors(failed(PMI_SIZE="2", LD_LIBRARY_PATH=str(tmp_path)))
    assert len(found) == 2
    for error in found:
        assert error.startswith("the MPI library cannot be loaded: "), error


@needs_mpich
def test_a_library_that_counts_other_ranks_is_named_by_all(failed: "Callable[..., str]") -> None:
    """Without mpiexec each process is rank 0 of a job of its own."""
    found = errors(failed(PMI_SIZE="2", LD_LIBRARY_PATH=str(pathlib.Path(MPICH) / "lib")))
    assert len(found) == 2
    for error in found:
        assert "counts 1 rank, and MPICH has started 2 processes (PMI_SIZE=2)" in error
