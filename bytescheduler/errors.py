"""The exceptions of bytescheduler, drawn as a tree.

Error (RuntimeError)
├── ConfigError (ValueError)        a setting or an argument is wrong; nothing was done
├── UsageError                      the right call at the wrong moment, or for the second time
├── Timeout (TimeoutError)          a process did not respond, or did not join, in time
├── PeerLost (ConnectionError)      a worker, a server or the scheduler node was lost or left
└── Closed                          the object was closed first

An engine failure without a name of its own (out of memory, a mistake of ours) is a plain ``Error``.
"""

from typing import Dict, Type

__all__ = ["Closed", "ConfigError", "Error", "PeerLost", "Timeout", "UsageError"]


class Error(RuntimeError):
    """Base of everything that bytescheduler raises.

    Parameters
    ----------
    message : str
        One sentence with the values in it.
    code : int
        The engine's status code (``bs::StatusCode``); 10, an internal mistake, if not given.
    """

    def __init__(self, message: str, code: int = 10) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        """Return the message; OSError, a base of some of us, would print its own idea of it."""
        return str(self.args[0])


class ConfigError(Error, ValueError):
    """A setting or an argument is wrong; nothing was done."""


class UsageError(Error):
    """The right call at the wrong moment, or for the second time."""


class Timeout(Error, TimeoutError):
    """A process did not respond, or did not join, in time; the message names it."""


class PeerLost(Error, ConnectionError):
    """A worker, a server or the scheduler node was lost or left; the message says which."""


class Closed(Error):
    """The object was closed first."""


_BY_CODE: Dict[int, Type[Error]] = {
    1: ConfigError,  # kInvalidArgument
    2: Timeout,  # kDeadlineExceeded
    3: Closed,  # kCancelled
    4: PeerLost,  # kUnavailable
    5: UsageError,  # kFailedPrecondition
    6: UsageError,  # kNotFound
    7: UsageError,  # kAlreadyExists
}


def _from_code(code: int, message: str) -> Error:
    """Return the exception for a status code of the engine."""
    return _BY_CODE.get(code, Error)(message, code)
