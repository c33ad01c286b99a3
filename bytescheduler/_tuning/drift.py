"""Notices that steps take another time than they did."""

import statistics
from typing import List, Optional

__all__ = ["Drift"]

# Medians of so many steps are compared.
_WINDOW = 4
# By so much they differ.
_MUCH = 0.1
# And so many in a row, to one side, so that a pause for evaluation is none.
_IN_A_ROW = 2


class Drift:
    """Compares steps with what they took when a search ended.

    A search that found nothing makes the next one rarer: it begins `rest` steps later at the
    earliest, and each such search doubles that.
    """

    def __init__(self, seconds: float, rest: int = 0) -> None:
        self._usual = seconds
        self._rest = rest
        self._window: List[float] = []
        self._sides: List[int] = []

    def note(self, seconds: float) -> Optional[float]:
        """Take a step's time; return what steps take now if they have changed."""
        if self._rest > 0:
            self._rest -= 1
            return None
        self._window.append(seconds)
        if len(self._window) < _WINDOW:
            return None
        now = statistics.median(self._window)
        self._window.clear()
        apart = now / self._usual - 1
        side = 0 if abs(apart) <= _MUCH else (1 if apart > 0 else -1)
        self._sides = [*self._sides[1 - _IN_A_ROW :], side]
        if side == 0 or self._sides != [side] * _IN_A_ROW:
            return None
        return now
