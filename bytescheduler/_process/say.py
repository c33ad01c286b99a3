"""One line for people, from a process that must not fail because of it."""

import contextlib
import os
import sys

__all__ = ["counted", "plain", "say"]


def plain(text: str) -> str:
    """Return `text` with what a terminal would obey written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(number: int, noun: str) -> str:
    """Return "1 worker" or "2 workers"; `noun` is a singular whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say(line: str) -> None:
    """Write a line to stderr; if that is closed or its disk is full, the line is dropped.

    If stderr is the process's own, nothing stays in Python's buffer.  Python would write that again
    at the end, and its failure would change the exit code.
    """
    stderr = sys.stderr
    if stderr is None:  # closed before Python started
        return
    is_real_stderr = stderr is sys.__stderr__
    with contextlib.suppress(OSError, ValueError):
        if is_real_stderr:
            stderr.flush()
            os.write(stderr.fileno(), f"{line}\n".encode(errors="replace"))
        else:
            print(line, file=stderr, flush=True)
