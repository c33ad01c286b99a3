"""The benchmark of goodput measures between the guest's devices."""

import json
import os
import pathlib
import sys
from typing import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = (
    "--hosts 10.77.0.1,10.77.0.2 --bytes 1M --rounds 2 --reads 50 --repeats 1 --arms read,tcp,rdma"
)


def test_rdma_is_measured_beside_tcp_and_the_device(inside: "Callable[..., str]") -> None:
    program = os.environ.get("BS_WIRE_BENCHMARK")
    if program is None:
        pytest.skip("no program for it: make nightly-rdma builds it")
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "benchmarks.rdma.goodput"]
    said = inside([*command, "--native", program, *LINE.split()], rdma=True, limit_s=600)
    found = json.loads(said[said.index("{\n") :])
    assert all(row["gbytes_per_s"] > 0 for row in found["medians"].values()), found
    assert sorted(found["medians"]) == ["rdma", "read", "tcp"]
    assert sorted(found["rdma_of"]) == ["read", "tcp"]
