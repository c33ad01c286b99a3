"""Jobs of PyTorch in which NCCL adds up inside hosts; libraries that play NCCL and the driver."""

import os
import pathlib
import re
from typing import Callable, Iterator, List

import pytest
from direct_job import Direct

# The folder of the libraries: `make python` builds them.
FAKES = os.environ.get("BS_FAKE_GPU_FOLDER", "")
pytestmark = pytest.mark.skipif(not FAKES, reason="BS_FAKE_GPU_FOLDER is not set; make python does")

Start = Callable[..., Direct]


@pytest.fixture
def start(tmp_path: pathlib.Path, free_port: Callable[..., int]) -> Iterator[Start]:
    """Return a function that starts a job on hosts that addresses of loopback play."""
    jobs: List[Direct] = []

    def begin(local_sums: str, size: int, per_host: int, mistake: str = "none") -> Direct:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        settings = {
            "BYTESCHEDULER_LOCAL_SUMS": local_sums,
            "BYTESCHEDULER_TIMEOUT": "20s",
            "LD_LIBRARY_PATH": f"{FAKES}/whole",
        }
        jobs.append(Direct(folder, free_port(), size, **settings))
        jobs[-1].start("torch_nccl/nccl_steps.py", mistake, str(per_host))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


def said(job: Direct, size: int, pattern: str) -> List[str]:
    """Return what each worker of a good job printed, by rank."""
    assert job.codes() == [0] * size, job.all_said()
    found = [re.findall(pattern, job.said(rank)) for rank in range(size)]
    assert all(len(each) == 1 for each in found), job.all_said()
    return [each[0] for each in found]


def test_weights_of_two_workers_are_as_in_a_direct_job(start: Start) -> None:
    jobs = [start("1", 2, 1), start("nccl", 2, 1), start("nccl", 2, 2)]
    weights = [set(said(job, 2, r"weights of rank \d of 2: (\w+)")) for job in jobs]
    assert len(weights[0]) == 1
    assert weights == [weights[0]] * 3
    assert said(jobs[2], 2, r"bytes copied: (\d+)") == ["0", "0"], "there is no other host"


def test_each_worker_of_a_host_copies_its_share(start: Start) -> None:
    job = start("nccl", 4, 2)
    assert len(set(said(job, 4, r"weights of rank \d of 4: (\w+)"))) == 1
    summed = [int(number) for number in said(job, 4, r"bytes summed: (\d+)")]
    copied = [int(number) for number in said(job, 4, r"bytes copied: (\d+)")]
    assert len(set(summed)) == 1
    assert summed[0] > 0
    for host in (copied[:2], copied[2:]):
        assert sum(host) == 2 * summed[0], "one copy of the host, both ways"
        assert min(host) > 0


def test_a_lost_worker_is_named(start: Start) -> None:
    job = start("nccl", 2, 1, "dies")
    assert all(job.codes()), job.all_said()
    assert "lost worker 1" in job.said(0).strip().splitlines()[-1]
