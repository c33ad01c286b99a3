"""Jobs of PyTorch's workers without an optimizer."""

from typing import Callable

from job import Job

MakeJob = Callable[..., Job]


def test_sums_broadcasts_and_objects(make_job: MakeJob) -> None:
    for output in make_job().run("torch/sums.py"):
        assert "all is well" in output
