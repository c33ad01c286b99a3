"""Numbers in dictionaries of gradient compression, of any type, and as texts."""

import numbers
from typing import Optional

__all__ = ["number_of", "plain_of", "text_of"]


def number_of(value: object) -> Optional[float]:
    """Return the number that a value or its text is; None if it is none.  True is none."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def plain_of(value: object) -> object:
    """Return a truth value of numpy as Python's, and any other value as it is."""
    kind = type(value)
    is_numpys = kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")
    return bool(value) if is_numpys else value


def text_of(value: object) -> str:
    """Return the text of a value for the engine; BytePS's scripts pass whole numbers as floats."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = None if isinstance(value, str) and value.isdecimal() else number_of(value)
    if number is None:
        return str(value)
    if number.is_integer():
        return str(int(number))
    return value if isinstance(value, str) else repr(number)
