"""The wait for the host names in a process's settings: a new pod's name has its address late."""

import time
from typing import Callable, Mapping, Optional

from bytescheduler._native import names_known

__all__ = ["await_names"]

_LOOK_EVERY_S = 0.2


def _never() -> bool:
    return False


def await_names(
    settings: Optional[Mapping[str, str]] = None, *, is_stopped: Callable[[], bool] = _never
) -> bool:
    """Return True when the host names in the settings have addresses.  Blocks.

    Parameters
    ----------
    settings : mapping of str to str, optional
        Settings that win over the environment.
    is_stopped : callable
        Returns whether to return False instead, such as after a signal.

    Raises
    ------
    ConfigError
        A name has no address within BYTESCHEDULER_TIMEOUT.
    """
    begin, waited_s = time.monotonic(), 0.0
    while not names_known(settings, waited_s=waited_s):
        if is_stopped():
            return False
        time.sleep(_LOOK_EVERY_S)
        waited_s = time.monotonic() - begin
    return True
