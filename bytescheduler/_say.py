"""One line for people, from a process that must not fail because of it."""

import contextlib
import os
import sys
from typing import Callable, Iterator, TextIO, cast

__all__ = ["UNWRITTEN", "plain", "say", "with_stdout"]

# The exit code of a command whose results could not be written.
UNWRITTEN = 3


def plain(text: str) -> str:
    """Return `text` with what a terminal would obey written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(line: str) -> None:
    """Write a line to stderr; one that is closed, or on a disk that is full, harms nobody.

    Where stderr is the process's own, nothing stays in Python's buffer: it would be tried again at
    the end, and turn the exit code into another.
    """
    stderr = sys.stderr
    if stderr is None:  # closed before Python started
        return
    own = stderr is sys.__stderr__
    with contextlib.suppress(OSError, ValueError):
        if own:
            stderr.flush()
            os.write(stderr.fileno(), f"{line}\n".encode(errors="replace"))
        else:
            print(line, file=stderr, flush=True)


class _StdoutError(Exception):
    """Standard output takes no more."""


class _Stdout:
    """Standard output, whose errors are told apart from those of other files.

    Of a pipe that is closed it raises what click expects.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._telling():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._telling():
            self._stream.flush()

    @staticmethod
    @contextlib.contextmanager
    def _telling() -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _StdoutError(error.strerror) from error


def with_stdout(program: str, command: Callable[[], None]) -> None:
    """Run a command that prints; one line, and the code `UNWRITTEN`, if stdout takes it not."""
    stdout = sys.stdout
    if stdout is not None:  # not closed before Python started
        sys.stdout = cast(TextIO, _Stdout(stdout))
    try:
        command()
    except _StdoutError as error:
        # So that Python does not try it once more at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout.fileno())
        os.close(nowhere)
        say(f"{program}: cannot write to standard output: {error}")
        sys.exit(UNWRITTEN)
    finally:
        sys.stdout = stdout
