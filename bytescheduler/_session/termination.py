"""The signals by which a launcher ends a worker: its report, and a signal that comes too late.

A launcher may look ten times a second and send SIGTERM, while the engine waits a second for a lost
peer to come back.  Without a handler the worker would end before it knows why.

A script that handles a signal, say to save, has no handler any more while the interpreter is torn
down: Python sets the default again, which ends the process.  Launchers signal the workers one
after the other.  So a worker may stop because another worker has heard the signal, and get its own
signal when it has nothing left to do.
"""

import atexit
import os
import signal
import threading
import time
from types import FrameType
from typing import Callable, Optional

from bytescheduler._process.say import say
from bytescheduler.errors import Error

__all__ = ["TerminationReport", "ignore_late_signals"]

_PATIENCE_S = 5.0  # until a worker knows that another one is lost
_LOOK_S = 0.05
# Without SIGALRM, by which a script may bound its own end.
_OF_LAUNCHERS = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2),
)


class TerminationReport:
    """Logs at SIGTERM why the job failed, and lets the process end by the signal.

    The main thread waits up to five seconds for a reason, and that long if the job is well.

    Parameters
    ----------
    status : callable
        Returns what failed the job, or None while it is well.
    """

    def __init__(self, status: Callable[[], Optional[Error]]) -> None:
        self._status = status

    def install(self) -> None:
        """Handle SIGTERM, in place of an earlier report, unless the script does.

        Only a main thread can.
        """
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM)
        is_ours = isinstance(getattr(handler, "__self__", None), TerminationReport)
        if is_main and (is_ours or handler is signal.SIG_DFL):
            signal.signal(signal.SIGTERM, self._ended)
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Leave the signal to its default in a forked child, which has no job."""
        if signal.getsignal(signal.SIGTERM) == self._ended:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _ended(self, number: int, frame: Optional[FrameType]) -> None:
        signal.signal(number, signal.SIG_DFL)
        try:
            self._log_failure()
        except RuntimeError:  # the signal came inside a write to stderr
            pass
        finally:
            os.kill(os.getpid(), number)

    def _log_failure(self) -> None:
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


def ignore_late_signals() -> None:
    """Ignore at the end of the interpreter the signals that the script has handlers for.

    Signals that it does not handle end the process, as before.  A second call changes nothing.
    """
    atexit.unregister(_ignore_handled)
    atexit.register(_ignore_handled)


def _ignore_handled() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _OF_LAUNCHERS:
        handler = signal.getsignal(number)
        is_ours = isinstance(getattr(handler, "__self__", None), TerminationReport)
        is_pythons = handler is signal.default_int_handler
        if callable(handler) and not is_ours and not is_pythons:
            signal.signal(number, signal.SIG_IGN)
