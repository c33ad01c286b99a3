"""Stores of MXNet in jobs whose workers host the servers, started by variables alone."""

import json
import pathlib
import re
import signal
import urllib.request
from typing import Callable, Iterator, List

import numpy as np
import pytest
from direct_job import Direct
from job import Job
from trained import Weights, assert_equal

MakeJob = Callable[..., Job]
MakeDirect = Callable[..., Direct]
SCRIPT = "direct/three_ways.py"
FOR_EVER = "1000000"
DETERMINISTIC = {"BYTESCHEDULER_DETERMINISTIC": "1"}
QUIET = {"BYTESCHEDULER_TUNING": "off"}


@pytest.fixture
def make_direct(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> "Iterator[MakeDirect]":
    jobs: List[Direct] = []

    def make(size: int, **settings: str) -> Direct:
        jobs.append(Direct(tmp_path, free_port(), size, **{**QUIET, **settings}))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def weights_of(file: pathlib.Path, size: int) -> "List[Weights]":
    return [dict(np.load(f"{file}-{rank}.npz")) for rank in range(size)]


def test_two_workers_have_the_weights_of_a_job_with_servers(
    make_job: MakeJob, make_direct: MakeDirect, tmp_path: pathlib.Path
) -> None:
    job = make_direct(2, BYTESCHEDULER_TIMELINE=str(tmp_path / "job.json"))
    job.start(SCRIPT, str(tmp_path / "direct"))
    make_job(servers=2).run(SCRIPT, str(tmp_path / "servers"))
    assert job.codes() == [0, 0], job.all_said()
    want = weights_of(tmp_path / "servers", 2)[0]
    assert {"readme1_weight", "named1_weight", "gluon_weight"} <= want.keys()
    for weights in weights_of(tmp_path / "direct", 2):
        assert_equal(want, weights)
    for node in ("r0", "r1", "s0", "s1"):
        text = (tmp_path / f"job-{node}.json").read_text()
        assert "readme1_weight" in text or node.startswith("s"), node
        assert json.loads(text), node


def test_three_workers_have_the_weights_of_a_job_with_servers(
    make_job: MakeJob, make_direct: MakeDirect, tmp_path: pathlib.Path
) -> None:
    job = make_direct(3, **DETERMINISTIC)
    job.start(SCRIPT, str(tmp_path / "direct"))
    make_job(workers=3, env=DETERMINISTIC).run(SCRIPT, str(tmp_path / "servers"))
    assert job.codes() == [0, 0, 0], job.all_said()
    want = weights_of(tmp_path / "servers", 3)[0]
    for weights in weights_of(tmp_path / "direct", 3):
        assert_equal(want, weights)


def shown_at(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return str(page.read().decode())


@pytest.mark.parametrize(
    "script",
    [
        ("direct/casts.py", "bf16", "same"),
        ("direct/onebit.py", "module"),
    ],
)
def test_gradients_travel_coded_both_ways(
    make_direct: MakeDirect, script: "tuple[str, ...]"
) -> None:
    job = make_direct(2)
    job.start(*script)
    assert job.codes() == [0, 0], job.all_said()


def test_names_of_byteps_train_to_the_weights_of_our_trainer(make_direct: MakeDirect) -> None:
    weights = set()
    for names in ("byteps", "ours"):
        job = make_direct(2)
        job.start("direct/byteps_names.py", names, "onebit")
        assert job.codes() == [0, 0], job.all_said()
        for rank in range(2):
            weights |= set(re.findall(r"weights (\d+)", job.said(rank)))
    assert len(weights) == 1, weights


def test_every_survivor_names_a_killed_worker(
    make_direct: MakeDirect, tmp_path: pathlib.Path
) -> None:
    job = make_direct(3, BYTESCHEDULER_METRICS="0", BYTESCHEDULER_LOG_LEVEL="info")
    job.start(SCRIPT, str(tmp_path / "none"), FOR_EVER)
    job.wait_for_line(1, "step 3")
    for rank in range(3):
        ports = re.findall(r"http://127\.0\.0\.1:(\d+)", job.said(rank))
        shown = "".join(shown_at(int(port)) for port in ports)
        roles = [role for role in ("worker", "server") if f'role="{role}"' in shown]
        assert roles == ["worker", "server"], job.said(rank)
    job.processes[1].signal(signal.SIGKILL)
    codes = job.codes()
    for rank in (0, 2):
        assert codes[rank] == 1, job.all_said()
        assert re.search(r"MXNetError: .*lost worker 1 \(", job.said(rank)), job.all_said()


def test_nccl_is_refused_at_the_start(make_direct: MakeDirect, tmp_path: pathlib.Path) -> None:
    job = make_direct(2, BYTESCHEDULER_COMM="nccl")
    job.start(SCRIPT, str(tmp_path / "none"))
    assert job.codes() == [1, 1], job.all_said()
    for rank in range(2):
        assert "MXNet's arrays travel through the host" in job.said(rank).splitlines()[-1]
