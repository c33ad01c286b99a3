"""onebit: sums are those of a model in numpy, bit for bit, with residuals on both ends."""

import re
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
ALL_SIZES = {"BYTESCHEDULER_MIN_COMPRESS": "1"}


@pytest.mark.parametrize(
    ("ef", "servers", "partition"),
    [("none", 1, "4KiB"), ("vanilla", 2, "4KiB"), ("vanilla", 1, "1MiB"), ("corrected", 2, "4KiB")],
)
def test_sums_are_the_models(make_job: MakeJob, ef: str, servers: int, partition: str) -> None:
    env = {"BYTESCHEDULER_PARTITION": partition, **ALL_SIZES}
    make_job(servers=servers, env=env).run("direct/onebit.py", ef)


def test_module_trains_alike_on_all_workers(make_job: MakeJob) -> None:
    job = make_job(servers=2)
    job.run("direct/onebit.py", "module")
    weights = re.findall(r"weights (\d+)", job.all_output())
    assert len(weights) == 2
    assert weights[0] == weights[1]


def test_workers_that_differ_are_told_both_before_weights_change(make_job: MakeJob) -> None:
    job = make_job(env=ALL_SIZES)
    workers = [job.start_worker("direct/onebit.py", "differs") for _ in range(2)]
    for worker in workers:
        assert worker.wait() != 0
        output = worker.output()
        # Workers compare what they push, and servers do: one of the two is first.
        for rank, ef in enumerate(("corrected", "vanilla")):
            named = rf"worker {rank}(: it| pushes|) is compressed to onebit scaled, ef {ef}"
            assert re.search(named, output), output
        assert "set gradient compression alike on all workers" in output
        assert "weights changed: False" in output
