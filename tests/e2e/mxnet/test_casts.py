"""bf16 and fp16: both ways, added in float32, whatever carries them."""

import json
import re
from typing import Callable, Optional, Set

import pytest
from job import Job

MakeJob = Callable[..., Job]


def codecs_of(job: Job, files: str, category: str) -> Set[Optional[str]]:
    """Return what spans of a category in those timelines name as their codec."""
    return {
        event["args"].get("coding")
        for file in job.folder.glob(files)
        for event in json.loads(file.read_text())
        if event.get("cat") == category
    }


@pytest.mark.parametrize(
    ("compressor", "pull", "partition"),
    [
        ("bf16", "same", "128KiB"),
        ("fp16", "same", "4KiB"),
        ("fp16", "plain", "512KiB"),
        ("fp16", "bf16", "64KiB"),
    ],
)
def test_sums_are_numpys_and_metrics_and_timelines_tell_of_codes(
    make_job: MakeJob, compressor: str, pull: str, partition: str
) -> None:
    env = {"BYTESCHEDULER_PARTITION": partition, "BYTESCHEDULER_TIMELINE": "t.json"}
    job = make_job(servers=2, env=env)
    job.run("direct/casts.py", compressor, pull)
    for way in ("weights", "module"):
        weights = re.findall(rf"{way} (\d+)", job.all_output())
        assert len(weights) == 2
        assert weights[0] == weights[1]
    for category in ("tensor", "push"):
        assert codecs_of(job, "t-r*.json", category) == {None, compressor}
    of_sums = {"same": compressor, "plain": None}.get(pull, pull)
    # Both ways to train leave `pull` out.
    assert codecs_of(job, "t-r*.json", "pull") == {None, compressor, of_sums}
    assert codecs_of(job, "t-s*.json", "sum") == {None, compressor}


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
