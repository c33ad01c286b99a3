"""How a worker tells the `bslaunch` that started it that it is past the rendezvous.

A datagram to an abstract socket whose name stands in the environment: unlike a descriptor it also
works for what the command itself starts, and there is nothing to leak.
"""

import contextlib
import os
import socket

from bytescheduler._launch import interrupt

__all__ = ["NAME", "Listener", "tell"]

NAME = "BSLAUNCH_READY"

interrupt.shorten()  # a worker imports this before it makes its store, which may take long


class Listener:
    """The end of `bslaunch`; hand `name` to the worker as the variable `NAME`."""

    def __init__(self) -> None:
        self.name = f"bslaunch-{os.getpid()}-{os.urandom(8).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind("\0" + self.name)

    def heard(self) -> bool:
        """Return, at once, whether the worker has spoken since the last call."""
        with contextlib.suppress(BlockingIOError):
            self._socket.recv(16)
            return True
        return False

    def close(self) -> None:
        """Stop listening; workers that speak later do no harm."""
        self._socket.close()


def tell() -> None:
    """Say that this process does not wait for the rendezvous (any more).  Never blocks or fails."""
    name = os.environ.get(NAME)
    if not name:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.setblocking(False)
        ours.sendto(b"ready", os.fsencode("\0" + name))
