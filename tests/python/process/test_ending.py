"""Exits of a script: the code reaches the calls at its end, and threads may exit."""

import subprocess
import sys
from typing import List

import pytest

PROGRAM = """
import atexit, sys, threading
from bytescheduler._process import ending
ending.watch_exits()
atexit.register(lambda: print(ending.bad_end()))
{end}
"""
KNOWN = "reason='exit code 3')\n"


def run(end: str) -> "subprocess.CompletedProcess[str]":
    command: List[str] = [sys.executable, "-c", PROGRAM.format(end=end)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("end", ["sys.exit(3)", "exit(3)", "quit(3)"])
def test_the_code_of_an_exit_is_known_at_the_end(end: str) -> None:
    done = run(end)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.endswith(KNOWN)


@pytest.mark.parametrize(
    "end", ["sys.exit()", "exit()", "exit(0)", "try:\n    exit(3)\nexcept SystemExit:\n    pass"]
)
def test_a_good_end_has_no_reason(end: str) -> None:
    done = run(end)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "None\n")


def test_an_exit_of_a_thread_is_silent() -> None:
    done = run(
        "thread = threading.Thread(target=sys.exit, args=(3,))\nthread.start()\nthread.join()"
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "None\n")
