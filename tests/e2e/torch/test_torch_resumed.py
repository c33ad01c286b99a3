"""A checkpoint that a job saves while updates wait is where a later job goes on."""

import pathlib
import re
from typing import Callable, Set

from job import Job

MakeJob = Callable[..., Job]
SCRIPT = "torch/resumed.py"


def ends(job: Job, task: str, path: pathlib.Path) -> Set[str]:
    """Return the digests of what the workers end with."""
    return {re.findall(r"ended with (\w+)", said)[0] for said in job.run(SCRIPT, task, str(path))}


def test_other_processes_go_on_bit_for_bit(make_job: MakeJob, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "saved.pt"
    whole = ends(make_job(), "save", path)
    assert len(whole) == 1
    assert ends(make_job(), "load", path) == whole
