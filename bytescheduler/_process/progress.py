"""A line at the foot of a terminal that says what a command is at; nowhere else."""

import contextlib
import sys
import time
from typing import Callable, Iterator

__all__ = ["progress"]

_FROM_ITS_BEGIN = "\r\x1b[K"  # where a terminal writes a line anew


def _silent(_step: str) -> None:
    pass


@contextlib.contextmanager
def progress(wanted: bool) -> Iterator[Callable[[str], None]]:
    """Yield what shows a few words, and the seconds so far, in place of those before.

    They go to stderr where that is a terminal, and are gone at the end; elsewhere, or if they are
    not `wanted`, nothing is shown.
    """
    stderr = sys.stderr
    if not wanted or stderr is None or not stderr.isatty():
        yield _silent
        return
    begin = time.monotonic()

    def show(step: str) -> None:
        stderr.write(f"{_FROM_ITS_BEGIN}{step} ({time.monotonic() - begin:.0f} s so far) ")
        stderr.flush()

    try:
        yield show
    finally:
        stderr.write(_FROM_ITS_BEGIN)
        stderr.flush()
