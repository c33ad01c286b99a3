"""Ctrl-C while TensorFlow waits: it calls no handler of Python until its operations have ended."""

import contextlib
import os
import signal
import socket
import threading
from typing import Callable

__all__ = ["Interrupts"]

_END = b"\0"  # a byte that is the number of no signal


class Interrupts:
    """Calls a function when Ctrl-C comes, from a thread of its own.

    It does so only while Python's own handler is set, as that raises `KeyboardInterrupt` then.  It
    needs the wake-up descriptor of the process; where that has another owner, or this is no main
    thread, nothing happens.

    Parameters
    ----------
    interrupt : callable
        Ends the waits.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._process = os.getpid()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._is_set = self._take()
        self._thread = threading.Thread(target=self._watch, name="bs-tf-interrupts", daemon=True)
        if self._is_set:
            self._thread.start()
            os.register_at_fork(after_in_child=self._forget)

    def _take(self) -> bool:
        try:
            earlier = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        except ValueError:  # not the main thread
            return False
        if earlier == -1:
            return True
        signal.set_wakeup_fd(earlier)
        return False

    def _watch(self) -> None:
        while True:
            numbers = self._reader.recv(64)
            if _END in numbers or not numbers:
                return
            if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is (
                signal.default_int_handler
            ):
                self._interrupt()

    def _forget(self) -> None:
        """Leave the parent's descriptor alone, in a forked child."""
        if self._is_set:
            self._is_set = False
            with contextlib.suppress(ValueError):
                signal.set_wakeup_fd(-1)

    def close(self) -> None:
        """End the thread; a second call does nothing."""
        if self._is_set and os.getpid() == self._process:
            self._is_set = False
            with contextlib.suppress(ValueError):  # not the main thread: it stays, and is read
                signal.set_wakeup_fd(-1)
            self._writer.send(_END)
            self._thread.join()
        self._reader.close()
        self._writer.close()
