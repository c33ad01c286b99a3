"""Jobs of PyTorch whose sums NCCL makes; libraries that play NCCL and the driver take part."""

import os
import pathlib
import re
from typing import Callable, Iterator, List

import pytest
from direct_job import Direct

from bytescheduler import timeline

# The folder of the libraries: `make python` builds them.
FAKES = os.environ.get("BS_FAKE_GPU_FOLDER", "")
pytestmark = pytest.mark.skipif(not FAKES, reason="BS_FAKE_GPU_FOLDER is not set; make python does")

Start = Callable[..., Direct]
STEPS = 20


@pytest.fixture
def start(tmp_path: pathlib.Path, free_port: Callable[..., int]) -> Iterator[Start]:
    """Return a function that starts a job which makes a mistake, or none."""
    jobs: List[Direct] = []

    def begin(
        mistake: str, comm: str, size: int = 2, kind: str = "whole", kind_of_last: str = ""
    ) -> Direct:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        settings = {"BYTESCHEDULER_COMM": comm}
        if mistake == "order":
            settings["BYTESCHEDULER_STRAGGLER_TIMEOUT"] = "3s"
        if mistake == "none" and kind == "whole":
            settings["BYTESCHEDULER_LOG_LEVEL"] = "info"
            settings["BYTESCHEDULER_TIMELINE"] = str(folder / "t.json")
        path = f"{FAKES}/{kind}"
        jobs.append(Direct(folder, free_port(), size, LD_LIBRARY_PATH=path, **settings))
        if kind_of_last:
            jobs[-1].more[size - 1] = {"LD_LIBRARY_PATH": f"{FAKES}/{kind_of_last}"}
        jobs[-1].start("torch_nccl/nccl_steps.py", mistake)
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


def hashes(job: Direct, size: int) -> List[str]:
    assert job.codes() == [0] * size, job.all_said()
    found = re.findall(rf"weights of rank \d of {size}: (\w+)", job.all_said())
    assert len(found) == size, job.all_said()
    return list(found)


def errors(job: Direct, size: int = 2) -> List[str]:
    """Return the last line of each worker, all of which fail."""
    assert all(job.codes()), job.all_said()
    return [job.said(rank).strip().splitlines()[-1] for rank in range(size)]


def test_weights_are_as_in_a_direct_job(start: Start) -> None:
    by_servers = hashes(start("none", "direct"), 2)
    job = start("none", "nccl")
    assert hashes(job, 2) == by_servers
    assert len(set(by_servers)) == 1
    assert job.all_said().count("NCCL sums tensors of GPUs: ") == 1
    copies = [int(number) for number in re.findall(r"copies: (\d+)", job.all_said())]
    assert len(copies) == 2
    assert max(copies) < STEPS, "gradients are not copied, only some whole numbers"
    sums = [int(number) for number in re.findall(r"by the library: (\d+)", job.all_said())]
    assert len(sums) == 2
    assert min(sums) >= STEPS, "each step has at least a sum"
    carried = timeline.summary(timeline.merge(sorted(job.folder.glob("t-r?.json"))))["carriers"]
    by_library = [int(number) for number in re.findall(r"bytes summed: (\d+)", job.all_said())]
    pushed = sum(row["pushed_bytes"] for row in carried)
    assert 0 < 2 * pushed < sum(by_library), "servers carry some whole numbers"


def test_all_of_three_workers_have_the_same_weights(start: Start) -> None:
    assert len(set(hashes(start("none", "nccl", 3), 3))) == 1


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        ("cpu", "it is on the CPU, and BYTESCHEDULER_COMM=nccl sums tensors of GPUs"),
        ("gpu", "worker 0 and worker 1 have tensors on one GPU, and NCCL needs a GPU for each"),
        ("moves", "this tensor is on GPU 7, and this worker's first one was on GPU 1"),
        ("sizes", "one name"),
        ("order", "after 3 s still waiting for worker "),
    ],
)
def test_a_mistake_is_an_error_of_all(start: Start, mistake: str, text: str) -> None:
    job = start(mistake, "nccl")
    assert all(job.codes()), job.all_said()
    for rank in range(2):
        assert text in job.said(rank)


@pytest.mark.parametrize("when", ["dies", "inside"])
def test_a_lost_worker_is_named(start: Start, when: str) -> None:
    """`inside`: all ranks have begun an operation of NCCL, which the lost one never ends."""
    job = start(when, "nccl")
    assert all(job.codes()), job.all_said()
    assert "lost worker 1" in job.said(0).strip().splitlines()[-1]


def test_without_the_library_all_say_so(start: Start) -> None:
    for line in errors(start("none", "nccl", kind="absent")):
        assert "NCCL cannot be used: this process has not loaded it" in line


def test_versions_that_differ_are_named_by_all(start: Start) -> None:
    for line in errors(start("none", "nccl", kind_of_last="newer")):
        assert "worker 0 has NCCL 2.21.5, and worker 1 has NCCL 2.23.4: install one" in line


def test_an_old_library_is_refused_by_all(start: Start) -> None:
    for line in errors(start("none", "nccl", kind="old")):
        assert "is NCCL 2.13.4, and version 2.14.0 or newer is needed" in line
