"""Runs a job on a loopback that is slow, in a network namespace of its own."""

import os
import pathlib
import subprocess
import sys
from typing import Dict, List

import pytest
from job import WORKERS

HERE = pathlib.Path(__file__).resolve().parent
NO_LINK = 77  # what the script ends with


def run(rate: str, servers: int, script: str, *arguments: str, env: Dict[str, str]) -> str:
    """Run two workers of `script` to a good end and return what they all wrote.

    Skips the test where no slow link is to be had.
    """
    launch = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2"]
    launch += ["-s", str(servers), "--timeout", "120", "-q", "--"]
    command: List[str] = [str(HERE / "slow_link.sh"), rate, *launch]
    command += [sys.executable, str(WORKERS / script), *arguments]
    # Not from the root of the checkout, where the package lies unbuilt.
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=180,
    )
    if done.returncode == NO_LINK:
        pytest.skip("no slow link to be had here: " + done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
