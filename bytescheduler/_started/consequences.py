"""The end of a worker by the failure of another process: one line instead of a traceback.

The process that failed prints the traceback that shows the mistake.  Tracebacks of its peers would
hide it.
"""

import re
import sys
import traceback
from types import TracebackType
from typing import Iterator, Optional, Type

from bytescheduler._process.say import say
from bytescheduler._settings import Settings
from bytescheduler._started import interrupt
from bytescheduler.errors import ConfigError, Error, PeerLost, UsageError

__all__ = ["Consequences", "as_raised"]

_UNCAUGHT = "uncaught "
_KINDS = {kind.__name__: kind for kind in (ConfigError, UsageError)}
_GAVE_UP = re.compile(r"\bworker (\d+) (?:\([^()]*\) )?gave up: ")


def as_raised(error: Error) -> Error:
    """Return the error of a peer that gave up, in the class that the peer raised if it is ours."""
    told = _GAVE_UP.search(str(error))
    if told is None or not isinstance(error, PeerLost):
        return error
    reason = str(error)[told.end() :]
    name = reason[len(_UNCAUGHT) :] if reason.startswith(_UNCAUGHT) else reason
    kind = _KINDS.get(name.partition(": ")[0])
    return error if kind is None else kind(str(error), error.code)


def _printed(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions that Python prints for `error`."""
    seen = set()
    at: Optional[BaseException] = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        context = None if at.__suppress_context__ else at.__context__
        at = context if at.__cause__ is None else at.__cause__


class Consequences:
    """Recognises exceptions that another process has caused.

    Parameters
    ----------
    rank : int
        Of this worker: what it has caused itself is no consequence.
    framework_error : type
        The class that the session raises from an error of the engine.

    Attributes
    ----------
    has_told : bool
        True once a line was printed.
    """

    def __init__(self, rank: int, framework_error: Type[Exception]) -> None:
        self._rank = rank
        self._framework_error = framework_error
        self.has_told = False

    def install(self) -> None:
        """Let the interpreter print a line for such an exception, unless the script has a hook.

        With BYTESCHEDULER_LOG_LEVEL=debug, and in an interactive interpreter, tracebacks stay.
        """
        if not hasattr(sys, "ps1") and Settings.read().log_level != "debug":
            interrupt.replace_plain(self._show)

    def _show(
        self,
        kind: Type[BaseException],
        error: BaseException,
        trace: Optional[TracebackType],
    ) -> None:
        if not self.tell(error):
            sys.__excepthook__(kind, error, trace)

    def tell(self, error: Optional[BaseException]) -> bool:
        """Print a line about `error` if it is a consequence; return whether it is."""
        if error is None or not all(self._is_told(printed) for printed in _printed(error)):
            return False
        last = "".join(traceback.format_exception_only(type(error), error))
        self.has_told = True
        say(" ".join(last.split("\n")).rstrip())
        return True

    def _is_told(self, error: BaseException) -> bool:
        if isinstance(error, Error):
            told = _GAVE_UP.search(str(error))
            is_lost = isinstance(error, PeerLost)
            return is_lost if told is None else int(told.group(1)) != self._rank
        # Its cause is judged by itself.
        return isinstance(error, self._framework_error) and isinstance(error.__cause__, Error)
