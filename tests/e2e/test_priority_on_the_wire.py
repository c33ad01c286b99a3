"""Priority acts on the wire: on a slow link an urgent tensor overtakes a big one."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Dict, List

import pytest

HERE = pathlib.Path(__file__).resolve().parent


def arrivals(scheduling: str) -> "List[Dict[str, float]]":
    """Run two workers over a slow loopback; when each tensor's sum arrived, by worker."""
    command = [str(HERE / "slow_link.sh"), "200mbit", sys.executable, "-m", "bytescheduler.launch"]
    command += ["--local", "-w", "2", "-s", "1", "--timeout", "120", "-q", "--"]
    command += [sys.executable, str(HERE / "overtaking_worker.py")]
    env = dict(os.environ, BYTESCHEDULER_SCHEDULING=scheduling, OMP_NUM_THREADS="1")
    # Not from the root of the checkout, where the package lies unbuilt.
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, timeout=180)
    if done.returncode == 77:
        pytest.skip("no slow link to be had here: " + done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("ARRIVED ")]
    assert len(lines) == 2, done.stdout
    return [json.loads(line[len("ARRIVED ") :]) for line in lines]


def test_an_urgent_tensor_overtakes_a_big_one() -> None:
    for arrived in arrivals(scheduling="1"):
        assert arrived["urgent"] < arrived["big"] / 2, arrived


def test_without_scheduling_it_waits_behind_the_big_one() -> None:
    # The test of the test: the same bytes, first ready first sent.
    for arrived in arrivals(scheduling="0"):
        assert arrived["urgent"] > arrived["big"] / 2, arrived
