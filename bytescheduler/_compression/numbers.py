"""Numbers in dictionaries of gradient compression, of any type, and as texts."""

import numbers
from typing import Optional

__all__ = ["number_of", "text_of"]


def number_of(value: object) -> Optional[float]:
    """Return the number that a value or its text is; None if it is none.  True is none."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def text_of(value: object) -> str:
    """Return the text of a value for the engine; BytePS's scripts pass whole numbers as floats."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)
