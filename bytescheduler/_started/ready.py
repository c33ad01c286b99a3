"""How a worker tells the `bslaunch` that started it where it is in the job.

It tells that it registers or waits for the rendezvous, that it is past that, which place it has,
and that it has left.  Each is a datagram to an abstract socket whose name stands in the
environment.  Unlike a descriptor it also works for what the command itself starts, and there is
nothing to leak.
"""

import contextlib
import os
import socket
import threading
from typing import Dict, List

from bytescheduler._started import interrupt

__all__ = ["NAME", "Listener", "tell", "tell_left", "tell_place", "tell_register", "tell_wait"]

NAME = "BSLAUNCH_READY"
_REGISTER, _WAIT, _READY, _PLACE = "register", "wait", "ready", "place"
_LEFT, _GAVE_UP = "left", "gave-up"
_ENDS = (_LEFT, _GAVE_UP)
_LONGEST = 256  # bytes of what a worker says

interrupt.shorten()  # a worker imports this before it makes its store, which may take long


class Listener:
    """The end of `bslaunch`; hand `name` to the worker as the variable `NAME`.  Thread-safe."""

    def __init__(self) -> None:
        self.name = f"bslaunch-{os.getpid()}-{os.urandom(8).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind("\0" + self.name)
        self._lock = threading.Lock()
        self._places: Dict[str, str] = {}  # the latest word about each
        self._waits = False
        self._is_silent = True

    def heard(self) -> bool:
        """Return, at once, whether the worker was past the wait at a time since the last call."""
        spoken = False
        with self._lock, contextlib.suppress(BlockingIOError):
            while True:
                word, _, place = self._socket.recv(_LONGEST).decode(errors="replace").partition(" ")
                self._is_silent = False
                spoken = spoken or word not in (_REGISTER, _WAIT)
                # Another process of the worker may leave meanwhile.
                if word not in (_REGISTER, *_ENDS):
                    self._waits = word == _WAIT
                if word == _PLACE or word in _ENDS:
                    self._places[place] = word
        return spoken

    def is_silent(self) -> bool:
        """Return, at once, whether the worker has said nothing yet; the words stay for `heard`."""
        with self._lock:
            if not self._is_silent:
                return False
            with contextlib.suppress(BlockingIOError):
                self._socket.recv(1, socket.MSG_PEEK)
                return False
            return True

    def waits(self) -> bool:
        """Return, at once, whether the worker said last that it waits for the rendezvous."""
        self.heard()
        return self._waits

    def held_places(self) -> List[str]:
        """Return the places that were told and not left."""
        self.heard()
        return [place for place, word in self._places.items() if word == _PLACE]

    def unexplained_places(self) -> List[str]:
        """Return the places that were told and not left, or left without a reason."""
        self.heard()
        return [place for place, word in self._places.items() if word != _GAVE_UP]

    def close(self) -> None:
        """Stop listening; workers that speak later do no harm."""
        self._socket.close()


def tell_register() -> None:
    """Say that this process registers with the scheduler node now.  Never blocks or fails."""
    _tell(_REGISTER)


def tell_wait() -> None:
    """Say that this process waits for the rendezvous from now on.  Never blocks or fails."""
    _tell(_WAIT)


def tell() -> None:
    """Say that this process does not wait for the rendezvous (any more).  Never blocks or fails."""
    _tell(_READY)


def tell_place(place: str) -> None:
    """Say that this process is a worker which has `place`.  Never blocks or fails."""
    _tell(f"{_PLACE} {place}")


def tell_left(place: str, *, has_reason: bool = False) -> None:
    """Say that this process has left `place`, in good order or not.  Never blocks or fails.

    `has_reason`: the job knows why this worker left early.
    """
    _tell(f"{_GAVE_UP if has_reason else _LEFT} {place}")


def _tell(text: str) -> None:
    name = os.environ.get(NAME)
    if not name:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.setblocking(False)
        ours.sendto(text.encode(), os.fsencode("\0" + name))
