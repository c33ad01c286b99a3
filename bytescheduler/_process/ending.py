"""The calls at the end of a process, also of a child of multiprocessing, which skips atexit."""

import atexit
import sys
from typing import Callable, Optional

__all__ = ["at_end", "is_child", "uncaught"]


def is_child() -> bool:
    """Return whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")  # every child has it
    return process is not None and process.parent_process() is not None


def at_end(call: Callable[[], None]) -> Callable[[], None]:
    """Let `call` run when the script is over; the latest first.

    Return a function that takes it back.  A forked child inherits nothing of multiprocessing's, but
    what atexit has.  `call` may run twice.
    """
    atexit.register(call)
    if not is_child():
        return lambda: atexit.unregister(call)
    from multiprocessing import util

    finalizer = util.Finalize(None, call, exitpriority=0)

    def take_back() -> None:
        atexit.unregister(call)
        finalizer.cancel()

    return take_back


def uncaught() -> Optional[BaseException]:
    """Return the exception that the script did not catch, at the end of the process."""
    if hasattr(sys, "ps1"):  # an interactive interpreter goes on after an exception
        return None
    last: Optional[BaseException] = getattr(sys, "last_value", None)
    if last is not None or not is_child():
        return last
    raised = sys.exc_info()[1]  # multiprocessing runs the calls while it is on its way
    return None if isinstance(raised, SystemExit) else raised
