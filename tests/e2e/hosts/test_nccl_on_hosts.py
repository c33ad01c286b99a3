"""NCCL adds up inside each of two hosts; libraries that play NCCL and the driver take part."""

import os
import pathlib
import re
import sys
from typing import List

import pytest
from direct_job import start_direct
from job import WORKERS, Process
from lab import Lab, hosts_or_skip

# The folder of the libraries: `make python` builds them.
FAKES = os.environ.get("BS_FAKE_GPU_FOLDER", "")
pytestmark = pytest.mark.skipif(not FAKES, reason="BS_FAKE_GPU_FOLDER is not set; make python does")
COMMAND = [sys.executable, str(WORKERS / "torch_nccl" / "nccl_steps.py")]


def start(
    lab: Lab,
    folder: pathlib.Path,
    hosts: List[int],
    local_sums: str,
    port: int,
    mistake: str = "none",
) -> List[Process]:
    """Start a job of workers on these hosts."""
    pytest.importorskip("torch")
    settings = {
        "BYTESCHEDULER_LOCAL_SUMS": local_sums,
        "LD_LIBRARY_PATH": f"{FAKES}/whole",
        # More partitions, for owners to take turns.
        "BYTESCHEDULER_PARTITION": "4KiB",
    }
    return [
        start_direct(lab, folder, hosts, rank, [*COMMAND, mistake], port, **settings)
        for rank in range(len(hosts))
    ]


def run(lab: Lab, folder: pathlib.Path, hosts: List[int], local_sums: str, port: int) -> List[str]:
    """Run a job of workers on these hosts, and return what each printed."""
    job = start(lab, folder, hosts, local_sums, port)
    codes = [process.wait(240) for process in job]
    outputs = [process.output() for process in job]
    assert not any(codes), outputs
    return outputs


def found(outputs: List[str], pattern: str) -> List[str]:
    values = [re.findall(pattern, text) for text in outputs]
    assert all(len(each) == 1 for each in values), outputs
    return [each[0] for each in values]


WEIGHTS = r"weights of rank \d of \d: (\w+)"


def test_weights_of_two_workers_are_as_in_a_direct_job(tmp_path: pathlib.Path) -> None:
    with hosts_or_skip(lambda: Lab(2)) as lab:
        by_servers = found(run(lab, tmp_path, [0, 1], "1", 29701), WEIGHTS)
        by_nccl = found(run(lab, tmp_path, [0, 1], "nccl", 29702), WEIGHTS)
    assert len(set(by_servers)) == 1
    assert by_nccl == by_servers


def test_each_worker_of_a_host_copies_its_share(tmp_path: pathlib.Path) -> None:
    with hosts_or_skip(lambda: Lab(2)) as lab:
        outputs = run(lab, tmp_path, [0, 0, 1, 1], "nccl", 29703)
    assert len(set(found(outputs, WEIGHTS))) == 1
    summed = [int(number) for number in found(outputs, r"bytes summed: (\d+)")]
    copied = [int(number) for number in found(outputs, r"bytes copied: (\d+)")]
    assert len(set(summed)) == 1
    assert summed[0] > 0
    for host in (copied[:2], copied[2:]):
        assert sum(host) == 2 * summed[0], "one copy of the host, both ways"
        assert 0.7 * summed[0] < min(host), "each owner has about half of it"
    assert min(int(number) for number in found(outputs, r"bytes page-locked: (\d+)")) > 0


def test_a_worker_that_is_lost_in_an_operation_is_named_on_both_hosts(
    tmp_path: pathlib.Path,
) -> None:
    with hosts_or_skip(lambda: Lab(2)) as lab:
        job = start(lab, tmp_path, [0, 0, 1], "nccl", 29704, "inside")
        codes = [process.wait(240) for process in job]
        outputs = [process.output() for process in job]
    assert all(codes), outputs
    for rank in (0, 2):
        assert "lost worker 1 (" in outputs[rank].strip().splitlines()[-1], outputs
