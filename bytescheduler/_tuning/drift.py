"""The notice that the time of a step has changed."""

import statistics
from typing import List, Optional

__all__ = ["Drift"]

# Steps in a window; the medians of windows are compared.
_WINDOW_STEPS = 4
# A window differs from a level if one median is this many times the other.
_CHANGED_RATIO = 1.1
# Windows in a row that must differ to the same side: a pause for an evaluation fills only one.
_WINDOWS_IN_A_ROW = 2
# Steps for which the levels of a search without a result hold; each such search in a row doubles
# them.
_HOLD_STEPS = 100
_MAX_DOUBLINGS = 10


class Drift:
    """Compares steps with the levels: the times of a step when searches began and ended.

    After a search without a result the levels hold for a while, so steps at a known level cause no
    search.  Steps that keep changing thus cause few searches, and a new level causes one at once.
    """

    def __init__(self) -> None:
        # Seconds a step; the last level is that of the end of the latest search.
        self._levels: List[float] = []
        self._fruitless = 0  # searches in a row without a result
        self._hold = 0  # steps until all levels but the last are forgotten
        self._window: List[float] = []
        self._sides: List[int] = []

    def searched(self, seconds: float, has_result: bool) -> None:
        """Note the end of a search: the seconds of a step, and if a faster point was found."""
        if has_result:
            self._levels.clear()
            self._fruitless = self._hold = 0
        else:
            self._hold = _HOLD_STEPS << min(self._fruitless, _MAX_DOUBLINGS)
            self._fruitless += 1
        self._levels.append(seconds)
        self._window.clear()
        self._sides.clear()

    def note(self, seconds: float) -> Optional[float]:
        """Note the seconds of a step; return the new level if steps have changed."""
        if self._hold > 0:
            self._hold -= 1
            if self._hold == 0:
                del self._levels[:-1]
        self._window.append(seconds)
        if len(self._window) < _WINDOW_STEPS:
            return None
        now = statistics.median(self._window)
        self._window.clear()
        side = 0
        if all(max(now / level, level / now) > _CHANGED_RATIO for level in self._levels):
            side = 1 if now > self._levels[-1] else -1
        self._sides = [*self._sides[1 - _WINDOWS_IN_A_ROW :], side]
        if side == 0 or self._sides != [side] * _WINDOWS_IN_A_ROW:
            return None
        self._levels.insert(0, now)
        return now
