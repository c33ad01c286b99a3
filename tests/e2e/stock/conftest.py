"""Our servers of these jobs stem from a process that has MXNet: stock workers bring optimizers."""

import functools
from typing import Callable

import pytest
from job import Job


@pytest.fixture
def make_job(make_job: Callable[..., Job]) -> Callable[..., Job]:
    return functools.partial(make_job, servers_have_mxnet=True)
