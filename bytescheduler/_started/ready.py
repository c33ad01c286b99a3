"""How a worker tells the `bslaunch` that started it where it is in the job.

It tells that it waits for the rendezvous, that it is past that, which place it has, and that it has
left.  Each is a datagram to an abstract socket whose name stands in the environment.  Unlike a
descriptor it also works for what the command itself starts, and there is nothing to leak.
"""

import contextlib
import os
import socket
from typing import Dict, List

from bytescheduler._started import interrupt

__all__ = ["NAME", "Listener", "tell", "tell_left", "tell_place", "tell_wait"]

NAME = "BSLAUNCH_READY"
_WAIT, _READY, _PLACE, _LEFT = "wait", "ready", "place", "left"
_LONGEST = 256  # bytes of what a worker says

interrupt.shorten()  # a worker imports this before it makes its store, which may take long


class Listener:
    """The end of `bslaunch`; hand `name` to the worker as the variable `NAME`."""

    def __init__(self) -> None:
        self.name = f"bslaunch-{os.getpid()}-{os.urandom(8).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind("\0" + self.name)
        self._places: Dict[str, bool] = {}  # True: the worker has left it
        self._waits = False

    def heard(self) -> bool:
        """Return, at once, whether the worker was past the wait at a time since the last call."""
        spoken = False
        with contextlib.suppress(BlockingIOError):
            while True:
                word, _, place = self._socket.recv(_LONGEST).decode(errors="replace").partition(" ")
                spoken = spoken or word != _WAIT
                if word != _LEFT:  # another process of the worker may leave meanwhile
                    self._waits = word == _WAIT
                if word in (_PLACE, _LEFT):
                    self._places[place] = word == _LEFT
        return spoken

    def waits(self) -> bool:
        """Return, at once, whether the worker said last that it waits for the rendezvous."""
        self.heard()
        return self._waits

    def held_places(self) -> List[str]:
        """Return the places that were told and not left."""
        self.heard()
        return [place for place, left in self._places.items() if not left]

    def close(self) -> None:
        """Stop listening; workers that speak later do no harm."""
        self._socket.close()


def tell_wait() -> None:
    """Say that this process waits for the rendezvous from now on.  Never blocks or fails."""
    _tell(_WAIT)


def tell() -> None:
    """Say that this process does not wait for the rendezvous (any more).  Never blocks or fails."""
    _tell(_READY)


def tell_place(place: str) -> None:
    """Say that this process is a worker which has `place`.  Never blocks or fails."""
    _tell(f"{_PLACE} {place}")


def tell_left(place: str) -> None:
    """Say that this process has left `place`, in good order or not.  Never blocks or fails."""
    _tell(f"{_LEFT} {place}")


def _tell(text: str) -> None:
    name = os.environ.get(NAME)
    if not name:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.setblocking(False)
        ours.sendto(text.encode(), os.fsencode("\0" + name))
