"""A command whose stdout takes nothing, or all of it."""

import os
import subprocess
import sys
from typing import Tuple

import pytest

# What is printed stays in a buffer until the end; the command has an exit code of its own.
PRINTING = """
import sys, threading, click
from bytescheduler._process import stdout

@click.command()
def command():
    print("\\u00e4" * 100)
    sys.exit(3)

stdout.run(command, [], "x")
"""
# A disk that is full is an error for an optimizer on a server, which says what came of it.
ON_A_THREAD = PRINTING.replace(
    "    print(",
    """
    def update():
        try:
            print("updated", flush=True)
        except OSError as error:
            print(error.strerror, file=sys.stderr)
    thread = threading.Thread(target=update)
    thread.start()
    thread.join()
    print(""",
)
# A socket or a file that is opened must not become somebody's stdout.
OPENING = """
import os, sys, click
from bytescheduler._process import stdout

@click.command()
def command():
    opened = [os.open("/dev/null", os.O_WRONLY), *os.pipe()]
    sys.exit(0 if min(opened) > 2 else 4)

stdout.run(command, [], "x")
"""
# What a command runs finds stdout as the command did.
RUNNING = OPENING.replace("opened = [", "os._exit(os.system('echo x 2>/dev/null') >> 8)\n    [")
CANNOT = "x: cannot write to standard output: No space left on device\n"
CLOSED = "x: cannot write to standard output: it is not open for writing\n"


def run(program: str, where: str, unbuffered: str = "") -> Tuple[int, str, str]:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", sys.executable, "-c", program],
        cwd="/",  # not in a source tree
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        timeout=60,
    )
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", (3, "\u00e4" * 100 + "\n", "")),
        (">&-", (74, "", CLOSED)),
        (">&- 2>&-", (74, "", "")),
        ("<&- >&-", (74, "", CLOSED)),
        ("1</dev/null", (74, "", CLOSED)),
        (">/dev/full", (74, "", CANNOT)),
        (">/dev/full 2>/dev/full", (74, "", "")),
    ],
)
def test_output_left_in_the_buffer_is_written_or_told(
    where: str, expected: Tuple[int, str, str]
) -> None:
    assert run(PRINTING, where) == expected


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2>/dev/full >/dev/full"])
def test_an_error_that_cannot_be_said_has_its_exit_code(where: str) -> None:
    wrong = PRINTING.replace("print(", "raise click.UsageError(")
    assert run(wrong, where) == (2, "", "")


@pytest.mark.parametrize("where", ["", ">&-", "<&- >&- 2>&-"])
def test_nothing_that_is_opened_takes_the_place_of_a_closed_one(where: str) -> None:
    assert run(OPENING, where) == (0, "", "")


def test_a_child_finds_a_closed_stdout_closed() -> None:
    assert run(RUNNING, ">&-")[0] != 0
    assert run(RUNNING, "")[0] == 0


def test_another_thread_gets_the_error() -> None:
    said = "No space left on device\n"
    assert run(ON_A_THREAD, ">/dev/full") == (74, "", said + CANNOT)


@pytest.mark.parametrize(("unbuffered", "printed"), [("", ""), ("1", "\u00e4" * 100 + "\n")])
def test_python_can_be_told_not_to_buffer(unbuffered: str, printed: str) -> None:
    killed = PRINTING.replace("sys.exit(3)", "import os; os._exit(3)")
    assert run(killed, "", unbuffered) == (3, printed, "")


@pytest.mark.parametrize("where", ["", ">/dev/full"])
def test_an_unbuffered_stdout_is_watched_too(where: str) -> None:
    expected = (74, "", CANNOT) if where else (3, "\u00e4" * 100 + "\n", "")
    assert run(PRINTING, where, "1") == expected
