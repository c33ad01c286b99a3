"""A line instead of a traceback when Ctrl-C ends a worker that `bslaunch` started.

All workers of a job hear it at different points of their programs.  A worker that hears it late
fails because its peers have ended.
"""

import os
import sys
from types import TracebackType
from typing import Callable, Optional, Type

from bytescheduler._process.ending import text_of
from bytescheduler._process.say import say

__all__ = ["NAME", "replace_plain", "shorten"]

NAME = "BSLAUNCH_LOCAL"  # `bslaunch --local` sets it for its workers
_Hook = Callable[[Type[BaseException], BaseException, Optional[TracebackType]], object]


def shorten() -> None:
    """Print less from now on if `bslaunch --local` started this process; does nothing elsewhere."""
    if os.environ.get(NAME) and not isinstance(sys.excepthook, _Shortened):
        sys.excepthook = _Shortened(sys.excepthook)


def replace_plain(hook: _Hook) -> None:
    """Let `hook` print exceptions instead of Python, but for Ctrl-C; one of the script's stays."""
    if isinstance(sys.excepthook, _Shortened):
        sys.excepthook.replace_plain(hook)
    elif sys.excepthook is sys.__excepthook__:
        sys.excepthook = hook


class _Shortened:
    """An exception hook that reports Ctrl-C in a line; other errors go to the previous hook."""

    def __init__(self, previous: _Hook) -> None:
        self._other = previous

    def replace_plain(self, hook: _Hook) -> None:
        """Call `hook` where Python itself would be called."""
        if self._other is sys.__excepthook__:
            self._other = hook

    def __call__(
        self,
        kind: Type[BaseException],
        error: BaseException,
        trace: Optional[TracebackType],
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            say("bytescheduler: interrupted")
        elif KeyboardInterrupt.__name__ in text_of(error):  # another worker's, which ended this one
            say(f"bytescheduler: {error}")
        else:
            self._other(kind, error, trace)
