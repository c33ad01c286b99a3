"""The end of a command that cannot print: stdout is closed or full, or has no reader any more.

A failure to write to stderr changes nothing.
"""

import errno
import io
import os
import signal
import sys
import threading
from typing import List, Optional

import click

from bytescheduler._process import limits
from bytescheduler._process.say import say

__all__ = ["run", "why_lost"]

_CANNOT_WRITE = os.EX_IOERR
_NOBODY_READS = 128 + signal.SIGPIPE  # the code of shells


def why_lost(error: OSError) -> str:
    """Return why stdout does not take what is written to it."""
    if error.errno == errno.EBADF:  # the shell's `>&-` closes it
        return "it is not open for writing"
    return str(error.strerror)


def _hold_descriptors() -> None:
    """Keep what is opened from now on from getting the number of a stdin, stdout or stderr.

    Where one of these is closed, a socket could get its number, and what any library prints would
    go there.  Children find it closed as we did.
    """
    while True:
        got = os.open(os.devnull, os.O_RDONLY)
        if got > 2:
            os.close(got)
            return


class _Stdout(io.FileIO):
    """The process's stdout, which ends the process where it takes nothing.

    It raises SystemExit, not OSError, so that no command takes it for a file of its own.  What
    comes after that is dropped: Python tries again at its end, and would turn the exit code into
    another.  On other threads, such as that of an optimizer on a server, errors stay errors.
    """

    def __init__(self, program: str) -> None:
        super().__init__(1, "w", closefd=False)
        self._program = program
        self._lost = False

    def write(self, content) -> Optional[int]:  # type: ignore[no-untyped-def,override] # noqa: ANN001
        """Write to the descriptor."""
        if self._lost:
            return memoryview(content).nbytes
        try:
            return super().write(content)
        except OSError as error:
            if threading.current_thread() is not threading.main_thread():
                raise
            self._lost = True
            if error.errno == errno.EPIPE:
                raise SystemExit(_NOBODY_READS) from None
            say(f"{self._program}: cannot write to standard output: {why_lost(error)}")
            raise SystemExit(_CANNOT_WRITE) from None


class _Stderr(io.FileIO):
    """The process's stderr, which takes everything: a full disk changes no exit code."""

    def __init__(self) -> None:
        super().__init__(2, "w", closefd=False)

    def write(self, content) -> Optional[int]:  # type: ignore[no-untyped-def,override] # noqa: ANN001
        """Write to the descriptor, if it takes it."""
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def _watch_stderr() -> None:
    """Let the process's stderr be a `_Stderr`; where there is none, click's errors go to stdout."""
    stderr = sys.stderr
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Stderr()),
        encoding="utf-8" if stderr is None else stderr.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def _watch_stdout(program: str) -> None:
    """Let the process's stdout be a `_Stdout`, also one that was closed before Python started."""
    stdout = sys.stdout
    if stdout is None:
        closed = io.BufferedWriter(_Stdout(program))
        sys.stdout = io.TextIOWrapper(closed, encoding="utf-8", errors="replace")
        return
    stdout.flush()
    raw = _Stdout(program)
    unbuffered = getattr(stdout, "write_through", False)  # python -u, PYTHONUNBUFFERED
    sys.stdout = io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.isatty(),
        write_through=unbuffered,
    )


def run(command: click.Command, argv: Optional[List[str]], program: str) -> None:
    """Run a command to the end of the process, with what it printed written out.

    Raises
    ------
    SystemExit
        Always.
    """
    try:
        _hold_descriptors()
        _watch_stderr()
        _watch_stdout(program)
        command.main(argv, prog_name=program, help_option_names=["-h", "--help"])
    except OSError as error:
        if not limits.is_met(error):
            raise
        say(f"{program}: {limits.reason(error)}")
        raise SystemExit(1) from None
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()
