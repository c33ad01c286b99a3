"""The calls at the end of a process, also of a child of multiprocessing, which skips atexit.

They learn how the script ends: by an exception, or by an exit with a code other than 0.
"""

import _sitebuiltins
import atexit
import contextlib
import sys
import threading
import traceback
from typing import Callable, List, NamedTuple, NoReturn, Optional, Type, Union

from bytescheduler._process.say import plain, say

__all__ = [
    "BadEnd",
    "at_end",
    "bad_end",
    "early_end",
    "is_child",
    "print_early",
    "text_of",
    "uncaught",
    "watch_exits",
]

_Code = Union[None, int, str]
# Exceptions by which loops and generators end well.
_GOOD = (StopIteration, StopAsyncIteration, GeneratorExit)
_LONGEST = 1000  # characters of an exception's text: peers take 1,024 bytes of a reason
# The exit that the interpreter obeys, once it does: the exception itself would keep all frames.
_obeyed: "List[Optional[BadEnd]]" = []


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


class BadEnd(NamedTuple):
    """Why a script ends badly.

    Parameters
    ----------
    kind : type
        That of the exception that ends it, or that was handled when it called ``sys.exit``.
    reason : str
        A text for the other processes.
    """

    kind: Type[BaseException]
    reason: str


class _Exit(SystemExit):
    """Remembers that the interpreter obeys it: that drops it where no code of Python runs."""

    def __del__(self) -> None:
        is_main = threading.get_ident() == threading.main_thread().ident
        if is_main and sys._getframe().f_back is None:
            _obeyed[:] = [_described(self)]


def _exit(status: _Code = None, /) -> NoReturn:
    # A thread that ends by SystemExit is silent, and by a class derived from it is not.
    is_main = threading.get_ident() == threading.main_thread().ident
    raise _Exit(status) if is_main else SystemExit(status)


def _quit(_quitter: object, code: _Code = None) -> NoReturn:
    with contextlib.suppress(Exception):  # the interpreter's own closes it too
        sys.stdin.close()
    _exit(code)


def watch_exits() -> None:
    """Let `bad_end` know of exits from now on; in an interactive interpreter do nothing.

    It learns of ``sys.exit``, ``exit`` and ``quit``.
    """
    if not hasattr(sys, "ps1"):
        sys.exit = _exit
        _sitebuiltins.Quitter.__call__ = _quit  # type: ignore[method-assign, assignment]


def bad_end() -> Optional[BadEnd]:
    """Return why the script ends badly, at the end of the process; None if it ends well.

    An exit by ``raise SystemExit`` is known in a child of multiprocessing only.
    """
    error = uncaught()
    if error is not None:
        return BadEnd(type(error), f"uncaught {text_of(error)}")
    raised = sys.exc_info()[1] if is_child() else None
    if isinstance(raised, SystemExit):
        return _described(raised)
    return _obeyed[0] if _obeyed else None


def early_end(besides: Optional[BaseException] = None) -> Optional[BadEnd]:
    """Return why a script leaves early: the exception that it handles; None if it handles none.

    A ``finally`` handles the exception that passes it.  `besides` is no reason: the exception that
    the script handled already when it began to train.
    """
    error = sys.exc_info()[1]
    if error is None or error is besides or isinstance(error, _GOOD):
        return None
    if isinstance(error, SystemExit):
        return _described(error)
    return BadEnd(type(error), text_of(error))


def print_early() -> bool:
    """Print the exception that ends a child of multiprocessing; return whether there was one.

    multiprocessing prints it after all calls at the end, and until then the parent may end it.
    """
    raised = sys.exc_info()[1] if is_child() else None
    error = _cause(raised) if isinstance(raised, SystemExit) else raised
    if error is None:
        return False
    name = sys.modules["multiprocessing.process"].current_process().name
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(f"Process {name}:\n{text.rstrip()}")
    return True


def _cause(error: BaseException) -> Optional[BaseException]:
    return error.__cause__ or error.__context__


def _described(error: SystemExit) -> Optional[BadEnd]:
    if error.code in (None, 0):
        return None
    reason = f"exit code {int(error.code) if isinstance(error.code, int) else 1}"
    cause = _cause(error)
    if cause is None:
        return BadEnd(type(error), reason)
    return BadEnd(type(cause), f"{reason}, after {text_of(cause)}")


def text_of(error: BaseException) -> str:
    """Return the class and the text of an exception in one line of at most 1,000 characters.

    It may be shown on a terminal, and encoded as UTF-8.
    """
    try:
        text = plain(str(error)[:_LONGEST])
    except Exception:  # noqa: BLE001
        text = "(str() of it fails)"
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    return type(error).__name__ + (f": {text}" if text else "")
