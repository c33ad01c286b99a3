"""Waits of the tests for the work of other threads."""

import time
from typing import Callable

LIMIT_S = 10


def until(call: Callable[[], object]) -> None:
    """Call it again and again until it returns something true."""
    end = time.monotonic() + LIMIT_S
    while not call():
        assert time.monotonic() < end, f"it was not true within {LIMIT_S} s"
        time.sleep(0.001)
