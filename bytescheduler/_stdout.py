"""How a command ends that cannot print: stdout is on a full disk, or nobody reads it any more."""

import errno
import io
import os
import signal
import sys
import threading
from typing import List, Optional

import click

from bytescheduler._say import say

__all__ = ["run"]

_CANNOT_WRITE = os.EX_IOERR
_NOBODY_READS = 128 + signal.SIGPIPE  # as shells have it


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
            say(f"{self._program}: cannot write to standard output: {error.strerror}")
            raise SystemExit(_CANNOT_WRITE) from None


def _watch_stdout(program: str) -> None:
    """Let the process's stdout be a `_Stdout`."""
    stdout = sys.stdout
    if stdout is None:  # closed before Python started
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
    _watch_stdout(program)
    try:
        command.main(argv, prog_name=program)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()
