"""Jobs on two hosts whose workers host the servers.

The scheduler node has a process of its own, or, by variables alone, is in that of rank 0.
"""

import pathlib
import re
import sys
from typing import Callable

import numpy as np
from direct_job import start_direct
from job import WORKERS, Job
from lab import Lab, hosts_or_skip
from trained import assert_equal

MakeJob = Callable[..., Job]
# The host of the scheduler node, and of each worker.
HOSTS = [0, 0, 1]


def test_workers_of_two_hosts_have_the_weights_of_one_process(make_job: MakeJob) -> None:
    with hosts_or_skip(lambda: Lab(2)) as lab:
        job = make_job(servers=0, lab=lab, hosts=HOSTS)
        for output in job.run("torch/identity.py", "sgd"):
            assert "sgd is the same" in output
        joined = re.findall(r"(worker|server) (\S+):\d+ registered", job.all_output())
        places = [(role, lab.address(host)) for role in ("server", "worker") for host in range(2)]
        assert sorted(joined) == sorted(places)


def test_stores_of_mxnet_on_two_hosts_have_the_weights_of_a_job_with_servers(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    with hosts_or_skip(lambda: Lab(2)) as lab:
        job = make_job(servers=0, lab=lab, hosts=HOSTS)
        job.run("direct/three_ways.py", str(tmp_path / "direct"))
        joined = re.findall(r"(worker|server) (\S+):\d+ registered", job.all_output())
        alone = [sys.executable, str(WORKERS / "direct" / "three_ways.py"), str(tmp_path / "alone")]
        by_variables = [
            start_direct(lab, tmp_path, HOSTS[1:], rank, alone, 29801) for rank in range(2)
        ]
        codes = [process.wait(240) for process in by_variables]
        outputs = [process.output() for process in by_variables]
        assert not any(codes), outputs
    assert sorted(joined) == [
        (role, Lab.address(host)) for role in ("server", "worker") for host in range(2)
    ]
    make_job(servers=2).run("direct/three_ways.py", str(tmp_path / "servers"))
    want = dict(np.load(tmp_path / "servers-0.npz"))
    for rank in range(2):
        for way in ("direct", "alone"):
            assert_equal(want, dict(np.load(tmp_path / f"{way}-{rank}.npz")))
