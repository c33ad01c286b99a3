"""topk and randomk: sums are those of a model in numpy, bit for bit, with residuals."""

import re
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
ALL_SIZES = {"BYTESCHEDULER_MIN_COMPRESS": "1"}


@pytest.mark.parametrize(
    ("method", "ef", "servers", "partition"),
    [
        ("topk", "none", 1, "1MiB"),
        ("topk", "vanilla", 2, "4KiB"),
        ("topk-whole", "corrected", 2, "4KiB"),
        ("topk-halves", "vanilla", 1, "1MiB"),
        ("randomk", "none", 2, "4KiB"),
        ("randomk-whole", "vanilla", 2, "4KiB"),
        ("randomk-halves", "sparse", 1, "1MiB"),
    ],
)
def test_sums_are_the_models(
    make_job: MakeJob, method: str, ef: str, servers: int, partition: str
) -> None:
    env = {"BYTESCHEDULER_PARTITION": partition, **ALL_SIZES}
    make_job(servers=servers, env=env).run("direct/picks.py", method, ef)


def test_without_a_seed_all_nodes_draw_alike(make_job: MakeJob) -> None:
    job = make_job(servers=2, env=ALL_SIZES)
    job.run("direct/picks.py", "drawn", "none")
    drawn = re.findall(r"drawn (\d+)", job.all_output())
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]


def test_workers_that_differ_are_told_both(make_job: MakeJob) -> None:
    job = make_job(env=ALL_SIZES)
    workers = [job.start_worker("direct/picks.py", "topk", "differs") for _ in range(2)]
    for worker in workers:
        assert worker.wait() != 0
        output = worker.output()
        assert "topk with k 0.3, ef vanilla" in output
        assert "topk with k 0.2, ef vanilla" in output
        assert "set gradient compression alike on all workers" in output
