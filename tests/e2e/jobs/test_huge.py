"""Arrays of more than 2 GiB, where sizes no longer fit 31 bits."""

import pathlib
import re
from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]

# 2 GiB each: a worker's array, what it sends and receives; the server's two sums; and the copies
# of partitions here and there.
NEEDED_GIB = 13
NEEDED_BY_TWO_GIB = 19
AVAILABLE = re.search(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
AVAILABLE_GIB = int(AVAILABLE[1]) / 2**20 if AVAILABLE else 0


@pytest.mark.nightly
@pytest.mark.skipif(AVAILABLE_GIB < NEEDED_GIB, reason=f"needs {NEEDED_GIB} GiB of free memory")
@pytest.mark.parametrize("stock", [False, True], ids=["native", "stock servers"])
def test_an_array_of_more_than_two_gib_arrives_whole(make_job: MakeJob, stock: bool) -> None:
    """Of as many workers as there is memory for; on a stock server of one."""
    workers = 2 if AVAILABLE_GIB >= NEEDED_BY_TWO_GIB and not stock else 1
    env = {} if stock else {"BYTESCHEDULER_PARTITION": "64MiB"}
    for output in make_job(workers=workers, stock=stock, env=env).run("cases/huge.py"):
        assert "well done" in output
