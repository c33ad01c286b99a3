"""Arrays of more than 2 GiB, where sizes no longer fit 31 bits."""

import pathlib
import re
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]

# 2 GiB each: the worker's array, what it sends and receives; the server's two sums; and the copy
# of a partition here and there.
NEEDED_GIB = 13
AVAILABLE = re.search(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
AVAILABLE_GIB = int(AVAILABLE[1]) / 2**20 if AVAILABLE else 0


@pytest.mark.skipif(AVAILABLE_GIB < NEEDED_GIB, reason=f"needs {NEEDED_GIB} GiB of free memory")
def test_an_array_of_more_than_two_gib_arrives_whole(make_job: MakeJob) -> None:
    job = make_job(workers=1, env={"BYTESCHEDULER_PARTITION": "64MiB"})
    assert "well done" in job.run("huge.py")[0]
