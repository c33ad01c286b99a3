"""Jobs of PyTorch and MXNet whose sums MPI makes, under the mpiexec of `pip install mpich`."""

import os
import pathlib
import re
import shutil
import sys
from typing import Dict, List, Set

import numpy as np
import pytest
from job import WORKERS
from launched import needs_torch, run
from trained import assert_equal

# The folder of MPICH: `make python` installs it.
MPICH = os.environ.get("BS_MPICH", "")
pytestmark = pytest.mark.skipif(not MPICH, reason="BS_MPICH is not set; make python sets it")

TORCH = str(WORKERS / "torch" / "mpi_steps.py")
MXNET = str(WORKERS / "direct" / "stores.py")
SIZES = (2, 3, 4)


@pytest.fixture(scope="module")
def standard_abi(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a copy of MPICH that has only the library with the ABI of MPI 5."""
    folder = tmp_path_factory.mktemp("mpich") / "mpich"
    shutil.copytree(MPICH, folder, symlinks=True, ignore=shutil.ignore_patterns("libmpi.so*"))
    return folder


def job(mpich: pathlib.Path, size: int, comm: str, *script: str, code: int = 0) -> str:
    command = [str(mpich / "bin" / "mpiexec"), "-disable-auto-cleanup", "-n", str(size)]
    # `run` takes our settings out of the environment.
    settings = ["env", f"BYTESCHEDULER_COMM={comm}", sys.executable, *script]
    return run([*command, *settings], {**os.environ, "OMP_NUM_THREADS": "1"}, code).stdout


def hashes(text: str, size: int) -> "Set[str]":
    found: List[str] = re.findall(rf"weights of rank \d of {size}: (\w+)", text)
    assert len(found) == size, text
    return set(found)


@needs_torch
def test_weights_of_pytorch_equal_a_direct_job() -> None:
    by_servers = hashes(job(pathlib.Path(MPICH), 2, "direct", TORCH), 2)
    assert len(by_servers) == 1
    assert hashes(job(pathlib.Path(MPICH), 2, "mpi", TORCH), 2) == by_servers


@needs_torch
def test_the_abi_of_mpi_5_has_the_same_sums(standard_abi: pathlib.Path) -> None:
    by_servers = hashes(job(pathlib.Path(MPICH), 2, "direct", TORCH), 2)
    assert hashes(job(standard_abi, 2, "mpi", TORCH), 2) == by_servers


@needs_torch
@pytest.mark.parametrize("size", [3, 4])
def test_all_workers_have_the_same_weights(size: int) -> None:
    assert len(hashes(job(pathlib.Path(MPICH), size, "mpi", TORCH), size)) == 1


def weights(file: pathlib.Path, rank: int) -> "Dict[str, np.ndarray]":  # type: ignore[type-arg]
    return dict(np.load(f"{file}-{rank}.npz"))


def test_weights_of_mxnet_equal_a_direct_job(tmp_path: pathlib.Path) -> None:
    for comm in ("direct", "mpi"):
        job(pathlib.Path(MPICH), 2, comm, MXNET, str(tmp_path / comm))
    for rank in range(2):
        assert_equal(weights(tmp_path / "direct", 0), weights(tmp_path / "mpi", rank))


def test_mpi_needs_mpirun() -> None:
    without = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    settings = [f"{name}={text}" for name, text in without.items()]
    command = ["env", *settings, "BYTESCHEDULER_COMM=mpi", sys.executable, TORCH]
    text = run(command, code=1).stdout
    assert "neither OMPI_COMM_WORLD_SIZE nor PMI_SIZE is set: start it with mpirun -n 1" in text
