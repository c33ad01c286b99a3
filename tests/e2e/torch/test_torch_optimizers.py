"""Optimizers of PyTorch in jobs: their ordinary uses, and what makes crossing hard."""

from typing import Callable

import pytest
from job import Job

MakeJob = Callable[..., Job]


@pytest.mark.parametrize("script", ["ordinary", "crossing", "parallel", "names", "equal"])
def test_all_uses_are_well(make_job: MakeJob, script: str) -> None:
    for output in make_job().run(f"torch/{script}.py"):
        assert "all is well" in output
