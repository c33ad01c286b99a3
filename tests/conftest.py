"""What all Python tests share: signals that work, and ports that no other test gets."""

import signal
from typing import Callable, Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _signals_work() -> Iterator[None]:
    """Undo what shells and nohup do to commands in the background: children inherit it."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        signal.SIGQUIT: signal.signal(signal.SIGQUIT, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Return a function that finds another port, which is reserved until the test ends."""
    from bytescheduler._launch.ports import Ports  # house rules are tested without the package

    with Ports() as ports:
        yield ports.free
