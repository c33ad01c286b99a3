"""The real NCCL of NVIDIA's package: found, asked, and refused without a driver."""

import ctypes
import os
import pathlib
import subprocess

import pytest

RANK = os.environ.get("BS_NCCL_RANK", "")
PACKAGE = os.environ.get("BS_NCCL", "")
pytestmark = pytest.mark.skipif(
    not (RANK and PACKAGE),
    reason="BS_NCCL_RANK and BS_NCCL are not set; make nightly-nccl sets them",
)


def has_driver() -> bool:
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


def test_the_library_is_found_and_makes_an_id() -> None:
    folder = pathlib.Path(PACKAGE) / "nvidia" / "nccl" / "lib"
    done = subprocess.run(
        [RANK, "/nowhere", str(folder)], stdout=subprocess.PIPE, text=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"NCCL 2.21.5, {folder / 'libnccl.so.2'}", "a unique id: made"]
    if not has_driver():
        assert done.returncode == 3
        (error,) = lines[2:]
        assert error.startswith("NVIDIA's driver library cannot be used (libcuda.so.1: cannot open")
