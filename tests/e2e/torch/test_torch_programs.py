"""Random programs of collectives, their memory, and a rank that ends in the middle of a call."""

import os
import subprocess
import sys
from typing import Callable

import pytest
from job import PATIENCE_S, WORKERS, without_settings

FOLDER = WORKERS / "torch_distributed"
# `make nightly-torch` sets it.
PROGRAMS = os.environ.get("BS_TORCH_PROGRAMS", "50")


def run(script: str, port: int, argument: str) -> str:
    """Run a script that forks its ranks; return its output."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), str(port), argument],
        env={**without_settings(), "BYTESCHEDULER_LOG_LEVEL": "error", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * PATIENCE_S + 2 * int(PROGRAMS),
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_random_programs_have_the_bits_of_gloo(free_port: Callable[[], int]) -> None:
    said = run("programs.py", free_port(), PROGRAMS)
    assert said.count("compared ") == 4


@pytest.mark.nightly
def test_servers_keep_nothing_of_object_collectives_of_random_sizes(
    free_port: Callable[[], int],
) -> None:
    said = run("objects.py", free_port(), "10000")
    assert said.count("as little memory as early on") == 2


@pytest.mark.parametrize("fault", ["kill", "stop", "raise"])
def test_a_rank_that_ends_in_the_middle_of_each_call_is_named(
    free_port: Callable[[], int], fault: str
) -> None:
    said = run("ends_in_calls.py", free_port(), fault)
    assert said.count("has named it") == 2
