"""Compressed gradients of PyTorch: weights with each method, and arguments that are wrong."""

import pathlib
import re
from typing import Callable, Iterator

import pytest
from direct_job import Direct
from job import HERE, WORKERS, Job

MakeJob = Callable[..., Job]
# Some parameters of the small model are compressed, and some are not.
SMALL = {
    "BYTESCHEDULER_MIN_COMPRESS": "256",
    "PYTHONPATH": f"{HERE / 'on_path'}:{WORKERS / 'torch'}",
}


def test_each_method_crosses_the_barrier_with_the_weights_of_waiting(make_job: MakeJob) -> None:
    settings = {**SMALL, "BYTESCHEDULER_DETERMINISTIC": "1"}
    for output in make_job(workers=3, env=settings).run("torch_compressed/compressed.py"):
        assert "all is well" in output


def test_a_wrong_argument_is_an_error_on_every_worker(make_job: MakeJob) -> None:
    for output in make_job(env=SMALL).run("torch_compressed/compressed_mistakes.py"):
        assert "all is well" in output


def test_the_log_tells_of_compression_and_lost_residuals(
    make_job: MakeJob,
) -> None:
    job = make_job(env={**SMALL, "BYTESCHEDULER_LOG_LEVEL": "info"})
    first, second = job.run("torch_compressed/compressed_once.py")
    line = "compressing 7 of 23 tensors, 85 % of the bytes: onebit scaled, ef=vanilla: 1/25 both"
    assert (first + second).count("compressing") == (first + second).count(line) == 1
    assert "and with that goes the servers' residual of its coded sums" in first + second


@pytest.fixture
def direct(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> Iterator[Direct]:
    job = Direct(tmp_path, free_port(), 2, **SMALL)
    yield job
    job.close()


@pytest.mark.parametrize("part", ["apart", pytest.param("", marks=pytest.mark.nightly, id="all")])
def test_a_direct_job_that_waits_has_the_weights_of_one_that_crosses(
    make_job: MakeJob, direct: Direct, part: str
) -> None:
    """Random methods draw by keys, which are equal in both jobs."""
    said = make_job(env=SMALL).run("torch_compressed/compressed.py", part or "random")
    direct.start("torch_compressed/compressed.py", part, "waits")
    assert direct.codes() == [0, 0], direct.all_said()
    said += [direct.said(rank) for rank in range(2)]
    weights = [re.findall(r"^.* weighs \d+$", text, re.M) for text in said]
    assert len(weights[0]) == 4
    assert weights == [weights[0]] * 4
