"""However a process ends, its sums are right, nothing aborts, and no worker counts as lost."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]
CASES = ["daemon", "registered", "attribute", "child", "skipped"]


@pytest.mark.parametrize("stock", [False, True], ids=["ours", "stock"])
def test_a_process_ends_in_every_way(make_job: MakeJob, stock: bool) -> None:
    first, *others = [make_job(stock=stock) for _ in CASES]
    for output in first.run_with(others, "cases/endings.py", "dist_sync", CASES):
        assert output.count("well done") == len(CASES)
    for job in (first, *others):
        assert "lost worker" not in job.all_output()
