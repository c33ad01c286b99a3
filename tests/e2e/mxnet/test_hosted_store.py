"""Stores of MXNet whose workers host the servers, with a scheduler node of its own process."""

import pathlib
import re
import sys
from typing import Callable, Dict

import numpy as np
import pytest
from job import WORKERS, Job
from launched import BSLAUNCH, run
from trained import assert_equal

MakeJob = Callable[..., Job]
SCRIPT = "direct/three_ways.py"
FOR_EVER = "1000000"
DETERMINISTIC = {"BYTESCHEDULER_DETERMINISTIC": "1"}


@pytest.mark.parametrize(("workers", "more"), [(2, {}), (3, DETERMINISTIC)])
def test_bslaunch_gives_the_weights_of_a_job_with_servers(
    make_job: MakeJob, tmp_path: pathlib.Path, workers: int, more: "Dict[str, str]"
) -> None:
    make_job(workers=workers, servers=2, env=more).run(SCRIPT, str(tmp_path / "servers"))
    want = dict(np.load(tmp_path / "servers-0.npz"))
    script = [sys.executable, str(WORKERS / SCRIPT), str(tmp_path / "hosted")]
    options = [word for name, value in more.items() for word in ("--env", f"{name}={value}")]
    run([*BSLAUNCH, "--local", "-w", str(workers), "-s", "0", *options, "--", *script])
    for rank in range(workers):
        assert_equal(want, dict(np.load(tmp_path / f"hosted-{rank}.npz")))


def test_a_worker_killed_in_a_job_by_hand_is_named_by_all(make_job: MakeJob) -> None:
    job = make_job(workers=3, servers=0)
    for rank in range(3):
        job.start_worker(SCRIPT, "none", FOR_EVER, env={"DMLC_WORKER_ID": str(rank)})
    job.workers[1].wait_for_line("step 3")
    job.workers[1].kill()
    for process in (job.workers[0], job.workers[2], job.processes[0]):
        assert process.wait() == 1, job.all_output()
        assert re.search(r"lost worker 1 \((its server )?127\.", process.output()), job.all_output()
