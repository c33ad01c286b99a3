"""Sums by the MPI library of each launcher, by a program of C++ that is a rank of the job."""

import os
import pathlib
from typing import List

import pytest
from launched import require, run

RANKS = "BS_MPI_RANKS"  # the program: `make nightly-launchers` builds it
OPEN_MPI_5 = str(pathlib.Path(os.environ.get("BS_OPEN_MPI", ".")) / "bin" / "mpiexec")
OPEN_MPI_4 = "mpirun.openmpi"
MPICH_4 = "mpiexec.hydra"

pytestmark = pytest.mark.skipif(
    not os.environ.get(RANKS), reason=f"{RANKS} is not set; make nightly-launchers sets it"
)
ALL = pytest.mark.parametrize("mpiexec", [OPEN_MPI_5, OPEN_MPI_4, MPICH_4])
LIBRARIES = {OPEN_MPI_5: "libmpi.so.40", OPEN_MPI_4: "libmpi.so.40", MPICH_4: "libmpich.so.12"}


def command(mpiexec: str, count: int, case: str) -> List[str]:
    require(mpiexec)
    as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    options = [] if mpiexec == MPICH_4 else ["--oversubscribe", *as_root]
    return [mpiexec, *options, "-n", str(count), os.environ[RANKS], case]


def output(mpiexec: str, count: int, case: str) -> str:
    return run(command(mpiexec, count, case), {**os.environ, "OMP_NUM_THREADS": "1"}).stdout


@ALL
@pytest.mark.parametrize("count", [2, 3, 4])
def test_ranks_sum_alike(mpiexec: str, count: int) -> None:
    text = output(mpiexec, count, "sums")
    lines = [line for line in text.splitlines() if "all is well" in line]
    assert len(lines) == count, text
    assert all(line.endswith(LIBRARIES[mpiexec]) for line in lines), text


@ALL
@pytest.mark.parametrize("case", ["smaller", "larger"])
def test_another_size_on_a_rank_is_an_error_of_all(mpiexec: str, case: str) -> None:
    """Open MPI by itself writes beyond the smaller array."""
    text = output(mpiexec, 3, case)
    assert text.count("the ranks do not sum the same by MPI: rank 0 has") == 3, text
    assert text.count("all is well") == 3, text


def test_a_library_that_counts_other_ranks_than_the_launcher_is_an_error() -> None:
    require("mpirun.openmpi")  # its library has to be there
    text = output(MPICH_4, 2, "foreign")
    assert text.count("counts 1 rank, and MPICH has started 2 processes (PMI_SIZE=2)") == 2, text
