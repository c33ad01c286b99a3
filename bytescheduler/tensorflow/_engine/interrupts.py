"""Ctrl-C while TensorFlow waits: it calls no handler of Python until its operations have ended."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any, Callable, List, Optional, Tuple

__all__ = ["Interrupts"]

_END = b"\0"  # a byte that is the number of no signal
_AGAIN_S = 0.02  # between two ends of waits, as a graph may come to its waits later
# A handler that ran this short a time before a signal is seen was that signal's.
_NEAR_S = 0.05
# The source of TensorFlow whose frames make an error.
_ERRORS = "tensorflow/python/framework/errors_impl.py"


def _ignore(frame: FrameType, event: str, argument: object) -> None:
    """Trace nothing in a new frame."""


def _replace(frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
    """Raise `KeyboardInterrupt` in place of the error that a frame gets."""
    if event != "exception":
        return _replace
    sys.settrace(None)
    raise KeyboardInterrupt


def _place_of_main() -> Tuple[Optional[FrameType], int]:
    """Return the innermost frame of the main thread, and where it is in it."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame, -1 if frame is None else frame.f_lasti


class Interrupts:
    """Calls a function when Ctrl-C comes, again and again until Python's handler has run.

    It does so from a thread of its own.  It needs the wake-up descriptor of the process, and takes
    the place of Python's own handler.  Where another owner has either, or this is no main thread,
    nothing happens.

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
        self._is_closing = False
        self._handled_at = -_NEAR_S
        self._is_set = self._take()
        self._thread = threading.Thread(target=self._watch, name="bs-tf-interrupts", daemon=True)
        if self._is_set:
            self._thread.start()
            _LIVE.add(self)

    def _take(self) -> bool:
        if threading.current_thread() is threading.main_thread():
            while _KEPT:
                _KEPT.pop()._give_back()
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return False
        try:
            earlier = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        except ValueError:  # not the main thread
            return False
        if earlier != -1:
            signal.set_wakeup_fd(earlier)
            return False
        signal.signal(signal.SIGINT, self._handle)
        return True

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        """Raise `KeyboardInterrupt`, or let it replace an error that TensorFlow is making.

        There its bindings would make a `RuntimeError` of both.
        """
        self._handled_at = time.monotonic()
        caller = frame
        while caller is not None and caller.f_code.co_filename.endswith(_ERRORS):
            caller = caller.f_back
        if caller is frame or caller is None or sys.gettrace() is not None:
            signal.default_int_handler(number, frame)
        caller.f_trace = _replace  # it gets the error once TensorFlow's bindings raise it
        sys.settrace(_ignore)

    def _watch(self) -> None:
        while True:
            numbers = self._reader.recv(64)
            if _END in numbers or not numbers:
                return
            if signal.SIGINT in numbers:
                self._interrupt_until_handled()

    def _interrupt_until_handled(self) -> None:
        """End waits as long as the main thread stays where it is, so that its handler runs."""
        if time.monotonic() - self._handled_at < _NEAR_S:
            return
        place = _place_of_main()
        while signal.getsignal(signal.SIGINT) == self._handle:
            self._interrupt()
            time.sleep(_AGAIN_S)
            if self._is_closing or _place_of_main() != place:
                return

    def _forget(self) -> None:
        """Leave the parent's descriptor alone, in a forked child."""
        if self._is_set:
            self._is_set = False
            with contextlib.suppress(ValueError):
                signal.set_wakeup_fd(-1)

    def close(self) -> None:
        """End the thread; a second call does nothing.

        Only the main thread can give the descriptor back: after a call on another one it stays
        open, until the main thread makes the next object.
        """
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_set or os.getpid() != self._process:
            self._close_sockets()
            return
        self._is_set = False
        self._writer.send(_END)
        self._thread.join()
        if threading.current_thread() is threading.main_thread():
            self._give_back()
        else:
            _KEPT.append(self)

    def _give_back(self) -> None:
        """Give descriptor and handler back, on the main thread."""
        latest = signal.set_wakeup_fd(-1)
        if latest != self._writer.fileno():  # that of a later owner stays
            signal.set_wakeup_fd(latest)
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._reader.close()
        self._writer.close()


# Objects that were closed on another thread than the main one, so that the process keeps theirs.
_KEPT: List[Interrupts] = []
_LIVE: "weakref.WeakSet[Interrupts]" = weakref.WeakSet()


def _forget_all() -> None:
    for interrupts in list(_LIVE):
        interrupts._forget()


os.register_at_fork(after_in_child=_forget_all)
