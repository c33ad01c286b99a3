"""Finds the daemon of a launcher: it starts all processes that a job has on a host."""

import contextlib
import os
from typing import Dict, Mapping

from bytescheduler._process.family import parent_of

__all__ = ["starter"]

_MOST_ABOVE = 64


def starter(mark: Mapping[str, str]) -> int:
    """Return the nearest process above this one that was started without these variables.

    A script may stand between the daemon and this process, and then the parent is that script.

    Parameters
    ----------
    mark
        Variables by which the launcher's own processes differ from its daemon.
    """
    number = os.getppid()
    for _ in range(_MOST_ABOVE):
        above = parent_of(number)
        if above < 1 or not _has(number, mark):
            break
        number = above
    return number


def _has(number: int, mark: Mapping[str, str]) -> bool:
    """Return whether the process was started with these variables; not if they cannot be read."""
    variables: Dict[str, str] = {}
    with contextlib.suppress(OSError), open(f"/proc/{number}/environ", "rb") as file:
        for pair in file.read().split(b"\0"):
            name, _, value = os.fsdecode(pair).partition("=")
            variables[name] = value
    return all(variables.get(name, "") == value for name, value in mark.items())
