"""Small gradients in one round, where workers use other parameters, in another order."""

from typing import Callable

from job import Job

MakeJob = Callable[..., Job]


def test_bundles_of_workers_that_use_other_parameters_bring_the_weights_of_one_process(
    make_job: MakeJob,
) -> None:
    for output in make_job().run("torch/bundles.py"):
        assert output.count("it is the same") == 3
