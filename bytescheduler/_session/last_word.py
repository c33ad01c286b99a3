"""The last word of a worker that its launcher ends because another one is lost.

A launcher, such as torchrun, looks ten times a second and sends SIGTERM.  The engine waits a second
for a lost peer to come back, so without a handler the worker ends before it knows why.
"""

import os
import signal
import threading
import time
from types import FrameType
from typing import Callable, Optional

from bytescheduler._process.say import say
from bytescheduler.errors import Error

__all__ = ["LastWord"]

_PATIENCE_S = 5.0  # until a worker knows that another one is lost
_LOOK_S = 0.05


class LastWord:
    """Says at SIGTERM why the job failed, and lets the process end by the signal.

    Parameters
    ----------
    status : callable
        Returns what failed the job, or None while it is well.
    """

    def __init__(self, status: Callable[[], Optional[Error]]) -> None:
        self._status = status
        self._process = os.getpid()

    def install(self) -> None:
        """Handle SIGTERM, unless the script does; only a main thread can."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._ended)

    def _ended(self, number: int, frame: Optional[FrameType]) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == self._process:  # a forked child has no job
            self._say_why()
        os.kill(os.getpid(), number)

    def _say_why(self) -> None:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            try:
                failure = self._status()
            except Error:  # the worker has left the job
                return
            if failure is not None:
                say(f"bytescheduler: the job failed: {failure}")
                return
            time.sleep(_LOOK_S)
