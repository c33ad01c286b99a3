"""A line on stderr, whatever stderr is."""

import subprocess
import sys

import pytest

from bytescheduler._process.say import say

SAYING = "from bytescheduler._process.say import say; say('a line'); print('done')"


def test_a_line_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    say("a line")
    assert capfd.readouterr().err == "a line\n"


def test_a_stderr_of_python_gets_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    say("a line")
    assert capsys.readouterr().err == "a line\n"


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_changes_nothing(where: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", sys.executable, "-c", SAYING],
        cwd="/",  # not in a source tree
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
