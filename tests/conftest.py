"""What all Python tests share: signals that work."""

import signal
from typing import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_works() -> Iterator[None]:
    """Undo what shells do to commands in the background, or no test could end with Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
