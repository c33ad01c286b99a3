"""Exchanges between random groups of workers, in a whole direct job."""

import pathlib
import re
from typing import Callable

from direct_job import Direct

SIZE = 3


def test_random_exchanges_give_the_results_of_numpy(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    job = Direct(tmp_path, free_port(), SIZE)
    try:
        job.start("direct/exchanges.py", "1", "60")
        assert job.codes() == [0] * SIZE, job.all_said()
        for rank in range(SIZE):
            said = job.said(rank)
            assert said.endswith("left\n"), job.all_said()
            differs = re.search(r"differs: ConfigError: (.*)", said)
            assert differs, said
            assert "'all_gather #3'" in differs[1]
            assert "'all_reduce #3'" in differs[1]
            assert re.search(r"worker 1 (?:has )?calls 'all_gather #3'", differs[1])
        for rank in (0, 1):
            late = re.search(r"late: Timeout: (.*)", job.said(rank))
            assert late, job.said(rank)
            assert re.search("worker [01] has waited for 5 s; missing: worker 2", late[1])
        assert "quits: Closed: abort" in job.said(0)
    finally:
        job.close()
