"""Numbers, times and rates on the command line: in a range, and in words if they are none.

click's own ranges let nan pass, and inf where a range has no end.
"""

import math
import re
from typing import Optional, cast

import click

from bytescheduler._process.say import plain

__all__ = ["A_YEAR_S", "Count", "Seconds", "bits_per_s", "seconds_of", "shortened"]

A_YEAR_S = 31_536_000
_MOST_CHARACTERS = 40
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(f"(.*?) ?({'|'.join(_UNITS_S)}|)")
_UNITS_BITS = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
# A large B stands for bytes.
_RATE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kKmMgGtT])(?:(?i:bits?|bit/s)|bps|b/s|))")


def shortened(text: str) -> str:
    """Return what was given as a message can show it."""
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return plain(cut) or "''"


def seconds_of(text: str) -> float:
    """Return a time such as ``0.1``, ``100ms`` or ``2m`` in seconds; NaN if it is none."""
    match = _TIME.fullmatch(text.strip())
    try:
        return float(match.group(1)) * _UNITS_S[match.group(2) or "s"] if match else math.nan
    except ValueError:
        return math.nan


def bits_per_s(rate: str) -> float:
    """Return a rate in bits a second: ``1gbit``, ``2.5Gbit/s``, ``10Gbps`` and ``10G`` alike.

    Raises
    ------
    ValueError
        It is none.
    """
    match = _RATE.fullmatch(rate.strip())
    bits = float(match.group(1)) * _UNITS_BITS[match.group(2).lower()] if match else 0.0
    if not 1e3 <= bits <= 1e13:
        raise ValueError(
            f"{shortened(rate)}: want kbit, mbit or gbit, such as 300mbit or 2.5gbit; 10G and "
            "10Gbps are bits too"
        )
    return bits


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
            # Newer types of click say int, and any value is converted.
            return int(super().convert(cast("int", value), param, ctx))
        except click.BadParameter:
            self.fail(f"{shortened(str(value))}: {self._wanted}", param, ctx)


class Seconds(click.FloatRange):
    """A time from `least` to `most` seconds, with or without its unit."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)
        self._wanted = f"want seconds from {least:g} to {_written(most)}, such as 5 or 500ms"

    def convert(
        self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]
    ) -> float:
        """Return the number."""
        try:
            number = float(super().convert(seconds_of(str(value)), param, ctx))
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):  # neither below nor above a range
            self.fail(f"{shortened(str(value))}: {self._wanted}", param, ctx)
        return number


def _written(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:g}"
