"""The memory of a server, store after store."""

from typing import Callable

from job import Job

MakeJob = Callable[..., Job]


def test_a_server_keeps_nothing_of_stores_that_were_closed(make_job: MakeJob) -> None:
    for output in make_job().run("memory/stores.py"):
        assert "folds end as they began: True" in output, output
