"""The daemon of a launcher, above scripts and without them."""

import os
import subprocess
import sys
from typing import List

import pytest

from bytescheduler._started.starter import starter

MARK = {"TEST_RANK": "1", "TEST_SIZE": "4"}
ASK = "from bytescheduler._started.starter import starter; print(starter({'TEST_RANK': '%s'}))"


def said_by(*command: str) -> List[int]:
    """Return the numbers that such a command prints, which starts as process 1."""
    env = {**os.environ, **MARK, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, check=True, text=True, timeout=60
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("scripts", [0, 1, 2])
def test_scripts_between_are_no_daemon(scripts: int) -> None:
    command = [sys.executable, "-c", ASK % MARK["TEST_RANK"]]
    for _ in range(scripts):
        command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    assert said_by(*command) == [os.getpid()]


def test_a_process_of_another_rank_is_no_script_of_this_one() -> None:
    script = 'echo $$; TEST_RANK=2 "$@"; exit $?'
    shell, daemon = said_by("sh", "-c", script, "sh", sys.executable, "-c", ASK % 2)
    assert daemon == shell


def test_a_parent_without_the_variables_is_the_daemon() -> None:
    assert starter(MARK) == os.getppid()
