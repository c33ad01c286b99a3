"""Where bytes go in a job with servers beside workers and apart, on links that are not alike."""

import json
import pathlib
from typing import Callable

from job import Job
from lab import Lab, hosts_or_skip

MakeJob = Callable[..., Job]
PARTITION = 4096
# The host of the scheduler node, of each server and of each worker.
HOSTS = [0, 0, 1, 2, 3, 0, 1, 2]
APART = 3
RATES = {"BYTESCHEDULER_LINK_RATE": "500mbit"}
# With x for a server beside a worker and y apart: 1 + (3 - 2) x = 3 y / (1 / 2), 3 x + y = 1.
SHARE_BESIDE, SHARE_APART = 5 / 19, 4 / 19


def test_every_worker_gives_each_server_its_share(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    with hosts_or_skip(lambda: Lab(4)) as lab:
        job = make_job(
            workers=3,
            servers=4,
            lab=lab,
            hosts=HOSTS,
            env={"BYTESCHEDULER_PARTITION": str(PARTITION), **RATES},
            on_host={APART: {"BYTESCHEDULER_LINK_RATE": "250mbit"}},
        )
        outputs = job.run("steps/placed_worker.py")
    said = [line for text in outputs for line in text.splitlines() if line.startswith("pushed ")]
    assert len(said) == 3, outputs
    assert len(set(said)) == 1, said
    pushed = json.loads(said[0].partition(" ")[2])
    # The server apart has the largest address, so it has rank 0.  Each partition goes twice, and
    # shares hold to within a partition.
    wanted = [SHARE_APART, SHARE_BESIDE, SHARE_BESIDE, SHARE_BESIDE]
    for server, share in enumerate(wanted):
        assert abs(pushed[server] - share * sum(pushed)) <= 4 * PARTITION, (server, pushed)
    logged = "of all bytes go 21 % to server 0; 26 % to each of servers 1, 2, 3"
    assert sum(logged in text for text in outputs) == 1, outputs
