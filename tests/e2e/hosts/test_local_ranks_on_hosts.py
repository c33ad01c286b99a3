"""Ranks among the workers of a host, in a job on two hosts."""

import re
from typing import Callable

from job import Job
from lab import Lab, hosts_or_skip

MakeJob = Callable[..., Job]
# The host of the scheduler node, of the server and of each worker, by its rank.
HOSTS = [0, 0, 0, 1, 1, 0]


def test_workers_are_counted_on_each_host(make_job: MakeJob) -> None:
    with hosts_or_skip(lambda: Lab(2)) as lab:
        job = make_job(workers=4, lab=lab, hosts=HOSTS)
        for rank in range(4):
            job.start_worker("steps/ranked_worker.py", env={"RANK": str(rank)})
        said = [worker.wait() == 0 and worker.output() for worker in job.workers]
    found = sorted(re.findall(r"worker (\d) is (\d of \d) here", "".join(map(str, said))))
    assert found == [("0", "0 of 2"), ("1", "0 of 2"), ("2", "1 of 2"), ("3", "1 of 2")], said
