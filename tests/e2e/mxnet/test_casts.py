"""bf16 and fp16: both ways, added in float32, whatever carries them."""

import re
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]


@pytest.mark.parametrize(
    ("compressor", "pull", "partition"),
    [
        ("bf16", "same", "128KiB"),
        ("fp16", "same", "4KiB"),
        ("fp16", "plain", "512KiB"),
        ("fp16", "bf16", "64KiB"),
    ],
)
def test_sums_are_numpys_and_metrics_count_codes(
    make_job: MakeJob, compressor: str, pull: str, partition: str
) -> None:
    env = {"BYTESCHEDULER_PARTITION": partition}
    job = make_job(servers=2, env=env)
    job.run("direct/casts.py", compressor, pull)
    for way in ("weights", "module"):
        weights = re.findall(rf"{way} (\d+)", job.all_output())
        assert len(weights) == 2
        assert weights[0] == weights[1]


def test_a_worker_alone_gets_its_gradient_rounded(make_job: MakeJob) -> None:
    make_job(workers=1).run("direct/casts.py", "bf16", "same")


def test_workers_that_disagree_are_told_both_compressors(make_job: MakeJob) -> None:
    job = make_job()
    workers = [job.start_worker("direct/casts.py", "bf16", "differs") for _ in range(2)]
    for worker in workers:
        assert worker.wait() != 0
        output = worker.output()
        assert "compressed to bf16" in output
        assert "compressed to fp16" in output
        assert "set gradient compression alike on all workers" in output
