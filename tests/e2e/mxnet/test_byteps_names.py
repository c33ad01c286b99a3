"""Scripts of BytePS: with servers they train to the weights of ScheduledTrainer."""

import re
from typing import Callable, Set

import pytest
from job import Job

MakeJob = Callable[..., Job]


def weights(job: Job, names: str, method: str) -> Set[str]:
    job.run("direct/byteps_names.py", names, method)
    assert "refused: suspend(): a job keeps its workers" in job.all_output()
    return set(re.findall(r"weights (\d+)", job.all_output()))


@pytest.mark.parametrize("method", ["none", "onebit"])
def test_they_train_to_the_weights_of_our_trainer(make_job: MakeJob, method: str) -> None:
    theirs = weights(make_job(), "byteps", method)
    assert len(theirs) == 1
    assert theirs == weights(make_job(), "ours", method)


def test_a_worker_alone_trains_too(make_job: MakeJob) -> None:
    """It has the momentum of "onebit", and compresses nothing."""
    assert len(weights(make_job(workers=1), "byteps", "onebit")) == 1
