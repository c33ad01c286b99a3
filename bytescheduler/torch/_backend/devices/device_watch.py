"""Threads that call back when a device has come to an event."""

import collections
import threading
import time
from typing import Callable, Deque, List, NamedTuple, Optional

from bytescheduler.errors import Closed, Timeout
from bytescheduler.torch._device.runtime import Event

__all__ = ["DeviceWatch", "Then"]

_SHORTEST_S, _LONGEST_S = 0.00005, 0.001  # between two looks at an event
_LOOKS = 8  # while the time of an event doubles
_MOST_IDLE = 2  # threads that wait for their turn
_CLOSED = "its process group was destroyed before the device had come to its tensors"

# Gets None when the event is over, or the reason why nothing waits for it any more.
Then = Callable[[Optional[Exception]], None]


class _Entry(NamedTuple):
    event: Event
    timeout_s: float
    end: float
    then: Then


class DeviceWatch:
    """Looks at events of one stream, the oldest first.

    A driver's wait for an event has no time limit, so a thread looks at it from time to time.  A
    callback may wait for a later event.  So the thread that calls lets another thread look first.
    """

    def __init__(self) -> None:
        self._entries: Deque[_Entry] = collections.deque()
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # held by the thread that looks
        self._threads: List[threading.Thread] = []
        self._idle = 0  # threads that look, or wait for their turn to do so
        self._epoch = 0  # how often it was closed

    def add(self, event: Event, timeout_s: float, then: Then) -> None:
        """Let `then` be called, on another thread, when `event` is over or has taken too long."""
        with self._changed:
            self._entries.append(_Entry(event, timeout_s, time.monotonic() + timeout_s, then))
            self._have_idle()
            self._changed.notify_all()

    def close(self) -> None:
        """Tell all callbacks that nothing waits, and end the threads.

        Blocks until callbacks that run have returned.  `add` may come again.
        """
        with self._changed:
            self._epoch += 1
            threads, self._threads, self._idle = self._threads, [], 0
            entries = list(self._entries)
            self._entries.clear()
            self._changed.notify_all()
        for entry in entries:
            entry.then(Closed(_CLOSED, 3))
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _have_idle(self) -> None:
        """Start a thread if none is there that looks.  The caller holds the lock."""
        if self._idle:
            return
        self._idle += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(
            target=self._run, args=(self._epoch,), name="bytescheduler-watch", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _run(self, epoch: int) -> None:
        while self._serve(epoch):
            pass

    def _serve(self, epoch: int) -> bool:
        """Wait for an event and call back; return whether this thread goes on.

        Its variables would keep a call's tensors, so they end with it.
        """
        with self._turn:
            entry = self._next(epoch)
            if entry is None:
                return False
            outcome = self._await(entry, epoch)
            with self._changed:
                if self._epoch == epoch:
                    self._idle -= 1
                    if self._entries:
                        self._have_idle()
        entry.then(outcome)
        with self._changed:
            if self._epoch != epoch or self._idle >= _MOST_IDLE:
                return False
            self._idle += 1
        return True

    def _next(self, epoch: int) -> Optional[_Entry]:
        """Return the oldest entry; None: the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._entries) or self._epoch != epoch)
            return self._entries.popleft() if self._epoch == epoch else None

    def _await(self, entry: _Entry, epoch: int) -> Optional[Exception]:
        """Look at an event until it is over; return why it was not waited for to the end."""
        begin = time.monotonic()
        try:
            while not entry.event.query():
                now = time.monotonic()
                if self._epoch != epoch:
                    return Closed(_CLOSED, 3)
                if now >= entry.end:
                    return Timeout(
                        f"the device has not come to its tensors within {entry.timeout_s:g} s; "
                        "look at the work that was given to it before",
                        2,
                    )
                time.sleep(min(max((now - begin) / _LOOKS, _SHORTEST_S), _LONGEST_S))
        except Exception as error:  # the device's own
            return error
        return None
