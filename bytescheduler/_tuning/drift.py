"""Notices that steps take another time than they did."""

import statistics
from typing import List, Optional

__all__ = ["Drift"]

# Medians of so many steps are compared.
_WINDOW = 4
# They differ if one is so many times the other; and where a search found nothing just now, which
# grows with each such search.
_MUCH = 1.1
_VERY_MUCH = 1.3
# Steps in which only the latter counts, behind the first such search; each doubles it.
_REST = 100
_MOST_DOUBLINGS = 10
# And so many in a row, to one side, so that a pause for evaluation is none.
_IN_A_ROW = 2


class Drift:
    """Compares steps with what they took when a search ended.

    Each search in a row that found nothing (`fruitless` of them) makes the next one rarer: for a
    while only a large change is one, so that steps which change all the time are not searched for
    ever, and a link that has become another is seen all the same.
    """

    def __init__(self, seconds: float, fruitless: int = 0) -> None:
        self._usual = seconds
        self._rest = _REST << min(fruitless - 1, _MOST_DOUBLINGS) if fruitless > 0 else 0
        self._very_much = _VERY_MUCH ** min(fruitless, _MOST_DOUBLINGS)
        self._window: List[float] = []
        self._sides: List[int] = []

    def note(self, seconds: float) -> Optional[float]:
        """Take a step's time; return what steps take now if they have changed."""
        self._rest = max(self._rest - 1, 0)
        self._window.append(seconds)
        if len(self._window) < _WINDOW:
            return None
        now = statistics.median(self._window)
        self._window.clear()
        much = self._very_much if self._rest > 0 else _MUCH
        side = 0
        if max(now / self._usual, self._usual / now) > much:
            side = 1 if now > self._usual else -1
        self._sides = [*self._sides[1 - _IN_A_ROW :], side]
        if side == 0 or self._sides != [side] * _IN_A_ROW:
            return None
        return now
