"""A launcher's words to the scheduler node about workers that cannot speak for themselves.

It says goodbye for a worker that skipped its own clean-up, as os._exit does, and knows exit codes.
While a worker lives that has not spoken yet, as it imports, the launcher vouches for it.
"""

import contextlib
import os
import threading
import time
from typing import Callable, Mapping, Sequence

from bytescheduler._native import leave_for as _say_goodbye
from bytescheduler._native import settings, vouch_for
from bytescheduler._settings import Settings
from bytescheduler.errors import Error

__all__ = ["MOST_TIMEOUTS", "Vouching", "leave_for"]

# The scheduler node waits as many time-outs at most for workers that a launcher vouches for:
# Rendezvous::kMostTimeouts of ps-lite.
MOST_TIMEOUTS = 3

# The scheduler node reports missing nodes as often, and takes a word for three times as long.
_VOUCH_S = 5.0
_LEAST_S = 0.01


def _settings_of(env: Mapping[str, str]) -> Mapping[str, str]:
    names = {row.name for row in settings()}
    return {name: value for name, value in env.items() if name in names}


def leave_for(
    places: Sequence[str], env: Mapping[str, str], say: Callable[[str], None], code: int = 0
) -> None:
    """Leave the `places` that a worker had.  Blocks for a few seconds at most.

    Parameters
    ----------
    places : sequence of str
        `Listener.held_places`; with a code `Listener.unexplained_places`.
    env : mapping of str to str
        Variables of the worker that are not in the environment of this process.
    say : callable
        Gets a line about each place that could not be left.
    code : int
        The exit code of the worker; other than 0, the job fails by it.
    """
    overrides = _settings_of(env)
    reason = f"exit code {code}" if code else ""
    for place in places:
        try:
            _say_goodbye(place, overrides, reason=reason)
        except Error as error:
            say(f"the worker ended without leaving the job: {error}")


class Vouching:
    """Tells the scheduler node, on a thread of its own, about workers that live and are silent.

    Parameters
    ----------
    count : callable
        Returns how many there are; on that thread.  The thread ends at the first 0.
    env : mapping of str to str
        Variables of the workers that are not in the environment of this process.
    """

    def __init__(self, count: Callable[[], int], env: Mapping[str, str]) -> None:
        self._count = count
        self._overrides = _settings_of(env)
        self._token = int.from_bytes(os.urandom(4), "little")
        self._over = threading.Event()
        limits = Settings.read(self._overrides)
        fastest = min(limits.rendezvous_s, limits.timeout_s) / 4
        self._interval_s = max(_LEAST_S, min(_VOUCH_S, fastest))
        # The scheduler node may start a time-out later than this launcher.
        self._end = time.monotonic() + (MOST_TIMEOUTS + 1) * limits.rendezvous_s
        self._thread = threading.Thread(target=self._run, name="bslaunch-vouch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            workers = self._count()
            if not workers or time.monotonic() > self._end:
                return
            with contextlib.suppress(Error):  # it is not there, and another part says so
                vouch_for(workers, self._token, self._overrides)

    def stop(self) -> None:
        """Say no more.  Blocks for a few seconds at most."""
        self._over.set()
        self._thread.join()
