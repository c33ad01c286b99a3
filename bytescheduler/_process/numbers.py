"""Numbers on the command line: in a range, and in words if they are none.

click's own ranges let nan pass, and inf where a range has no end.
"""

import math
from typing import Optional

import click

from bytescheduler._process.say import plain

__all__ = ["A_YEAR_S", "Count", "Seconds", "shortened"]

A_YEAR_S = 31_536_000
_MOST_CHARACTERS = 40


def shortened(text: str) -> str:
    """Return what was given as a message can show it."""
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return plain(cut) or "''"


class Count(click.IntRange):
    """A whole number from `least` to `most`."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)
        self._wanted = f"want a whole number from {least} to {most}"

    def convert(
        self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]
    ) -> int:
        """Return the number."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{shortened(str(value))}: {self._wanted}", param, ctx)


class Seconds(click.FloatRange):
    """Seconds from `least` to `most`."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)
        self._wanted = f"want seconds from {least:g} to {_written(most)}, such as 5"

    def convert(
        self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]
    ) -> float:
        """Return the number."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):  # neither below nor above a range
            self.fail(f"{shortened(str(value))}: {self._wanted}", param, ctx)
        return number


def _written(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:g}"
