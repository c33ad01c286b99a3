"""The memory of a server, fold after fold and name after name."""

from typing import Callable

from job import Job

MakeJob = Callable[..., Job]


def test_a_server_keeps_no_model_of_earlier_folds_and_no_name_that_rests(make_job: MakeJob) -> None:
    for output in make_job().run("memory/folds.py"):
        assert "folds end as they began: True" in output, output
        assert "modules end as they began: True" in output, output
        assert "names end as ten did: True" in output, output
