"""The goodbye for a worker that ended with 0 but skipped its own clean-up, as os._exit does."""

from typing import Callable, Mapping, Sequence

from bytescheduler._native import leave_for as _say_goodbye
from bytescheduler._native import settings
from bytescheduler.errors import Error

__all__ = ["leave_for"]


def leave_for(places: Sequence[str], env: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Leave the `places` that a worker had.  Blocks for a few seconds at most.

    Parameters
    ----------
    places : sequence of str
        As `Listener.held_places` returns them.
    env : mapping of str to str
        Variables of the worker that are not in the environment of this process.
    say : callable
        Gets a line about each place that could not be left.
    """
    setting_names = {row.name for row in settings()}
    overrides = {name: value for name, value in env.items() if name in setting_names}
    for place in places:
        try:
            _say_goodbye(place, overrides)
        except Error as error:
            say(f"the worker ended without leaving the job: {error}")
