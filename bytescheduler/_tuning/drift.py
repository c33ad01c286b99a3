"""Notices that steps take another time than they did."""

import statistics
from typing import List, Optional

__all__ = ["Drift"]

# Medians of so many steps are compared.
_WINDOW = 4
# They differ if one is so many times the other.
_MUCH = 1.1
# And so many in a row, to one side, so that a pause for evaluation is none.
_IN_A_ROW = 2
# For so many steps what a search that found nothing has shown holds; each in a row doubles it.
_REST = 100
_MOST_DOUBLINGS = 10


class Drift:
    """Compares steps with what they took when searches began and ended.

    Where a search has found nothing, steps that take as long again are no news for a while. So
    steps that change all the time are not searched for ever, and a link that has become another is
    seen at once.
    """

    def __init__(self) -> None:
        # What steps took when searches began and ended; the last: when the last one ended.
        self._levels: List[float] = []
        self._fruitless = 0
        self._rest = 0
        self._window: List[float] = []
        self._sides: List[int] = []

    def searched(self, seconds: float, found: bool) -> None:
        """Take what a step takes now that a search is over, and whether it found something."""
        if found:
            self._levels.clear()
            self._fruitless = self._rest = 0
        else:
            self._rest = _REST << min(self._fruitless, _MOST_DOUBLINGS)
            self._fruitless += 1
        self._levels.append(seconds)
        self._window.clear()
        self._sides.clear()

    def note(self, seconds: float) -> Optional[float]:
        """Take a step's time; return what steps take now if they have changed."""
        if self._rest > 0:
            self._rest -= 1
            if self._rest == 0:
                del self._levels[:-1]
        self._window.append(seconds)
        if len(self._window) < _WINDOW:
            return None
        now = statistics.median(self._window)
        self._window.clear()
        side = 0
        if all(max(now / level, level / now) > _MUCH for level in self._levels):
            side = 1 if now > self._levels[-1] else -1
        self._sides = [*self._sides[1 - _IN_A_ROW :], side]
        if side == 0 or self._sides != [side] * _IN_A_ROW:
            return None
        self._levels.insert(0, now)
        return now
