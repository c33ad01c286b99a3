"""dithering and int8: sums are those of a model in numpy, bit for bit, on all workers."""

import pathlib
import re
import runpy
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
ROOT = pathlib.Path(__file__).resolve().parents[3]
ALL_SIZES = {"BYTESCHEDULER_MIN_COMPRESS": "1"}


@pytest.mark.parametrize(
    ("case", "servers", "partition"),
    [
        ("linear", 1, "4KiB"),
        ("signs", 2, "1MiB"),
        ("natural", 2, "4KiB"),
        ("plain", 1, "1MiB"),
        ("int8", 2, "4KiB"),
    ],
)
def test_sums_are_the_models(make_job: MakeJob, case: str, servers: int, partition: str) -> None:
    env = {"BYTESCHEDULER_PARTITION": partition, **ALL_SIZES}
    make_job(servers=servers, env=env).run("direct/dithering.py", case)


def test_workers_that_differ_are_told_both(make_job: MakeJob) -> None:
    job = make_job(env=ALL_SIZES)
    workers = [job.start_worker("direct/dithering.py", "differs") for _ in range(2)]
    for worker in workers:
        assert worker.wait() != 0
        output = worker.output()
        assert "dithering with k 5 natural l2, bucket 2048, seed 77, ef vanilla" in output
        assert "seed 78, ef vanilla" in output
        assert "set gradient compression alike on all workers" in output


def test_golden_codes_are_the_models() -> None:
    model = runpy.run_path(str(ROOT / "tests/e2e/workers/direct/dither_model.py"))
    header = (ROOT / "tests/codec/goldens/dithering_golden.h").read_text()
    rows = re.findall(r"\{\d+, \d+, \d+(?:,\s+0x[0-9a-f]{8}){3}\}", header)
    assert rows == [row.strip(" ,") for row in model["golden_rows"]()]
