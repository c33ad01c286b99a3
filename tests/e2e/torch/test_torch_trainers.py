"""Lightning, accelerate and Hugging Face's Trainer, as published, train to Gloo's weights."""

import os
import pathlib
import sys
from typing import Callable, Dict, List

import pytest
from direct_job import Direct
from job import WORKERS
from launched import BSLAUNCH, run

# `make nightly-torch` sets it: the folder that has the packages.
FOLDER = "BS_TRAINERS"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(FOLDER not in os.environ, reason="make nightly-torch installs the packages"),
]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SERVERS = [*BSLAUNCH, "--local", "-w", "2", "-s", "1", "--", sys.executable]
LIGHTNING = str(WORKERS / "trainers" / "lightning_job.py")


def environment() -> Dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.environ[FOLDER], "OMP_NUM_THREADS": "1"}


def output_of(command: List[str]) -> str:
    return run(command, environment()).stdout


def test_lightning_trains_to_the_weights_of_gloo(tmp_path: pathlib.Path) -> None:
    output = output_of([*TORCHRUN, LIGHTNING, "whole", str(tmp_path)])
    assert output.count("FSDP2: weights are Gloo's") == 2
    assert output.count("weights are Gloo's") == 36
    assert output.count("all is well") == 2


def test_lightning_trains_under_bslaunch_with_a_server(tmp_path: pathlib.Path) -> None:
    output = output_of([*SERVERS, LIGHTNING, "short", str(tmp_path)])
    assert output.count("all is well") == 2


def test_lightning_starts_the_other_worker_itself(tmp_path: pathlib.Path) -> None:
    output = output_of([sys.executable, LIGHTNING, "short", str(tmp_path)])
    assert output.count("all is well") == 2


def test_lightning_trains_alone(tmp_path: pathlib.Path) -> None:
    assert "all is well" in output_of([sys.executable, LIGHTNING, "alone", str(tmp_path)])


def test_lightning_names_a_lost_worker(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    job = Direct(
        tmp_path,
        0,
        2,
        MASTER_PORT=str(free_port()),
        DMLC_PS_ROOT_PORT="",
        PYTHONPATH=os.environ[FOLDER],
        LOCAL_WORLD_SIZE="2",
    )
    job.more = {rank: {"LOCAL_RANK": str(rank)} for rank in range(2)}
    try:
        job.start("trainers/lightning_job.py", "loss", str(tmp_path))
        assert job.codes() == [1, -9], job.all_said()
        assert "lost worker 1" in job.said(0)
        assert "During handling" not in job.said(0)
    finally:
        job.close()


@pytest.mark.parametrize("name", ["accelerate", "transformers"])
@pytest.mark.parametrize("start", [TORCHRUN, SERVERS], ids=["torchrun", "bslaunch"])
def test_hugging_face_trains_to_the_weights_of_gloo(
    start: List[str], name: str, tmp_path: pathlib.Path
) -> None:
    output = output_of([*start, str(WORKERS / "trainers" / f"{name}_job.py"), str(tmp_path)])
    assert output.count("all is well") == 2
