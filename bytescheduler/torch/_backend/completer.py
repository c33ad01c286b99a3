"""The threads that end calls for which no other thread waits."""

import itertools
import threading
from typing import Callable, Dict, List, Protocol

from bytescheduler._native import Completions
from bytescheduler._session.groups.carrier import Carrier

__all__ = ["Completer"]

_WAIT_MS = 1000
_LOOK_MS = 2  # while a call waits for something that is no exchange
_MOST_IDLE = 2  # threads that wait for their turn


class _Call(Protocol):
    """A call under way, such as `Work`."""

    def poll(self) -> bool:
        """Return whether it has ended."""

    def fail(self, error: Exception) -> None:
        """End it with an error."""

    def is_searching(self) -> bool:
        """Return whether it waits for something that is no exchange."""

    def on_end(self, call: Callable[[], object]) -> None:
        """Let `call` be called once it has ended."""


def _poll(call: _Call) -> None:
    try:
        call.poll()
    except Exception as error:  # other calls go on
        call.fail(error)


class Completer:
    """Keeps calls until they have ended; C++ holds the Python part of a `Work` weakly.

    A callback of a future may wait for another call.  So the thread that has taken ends lets
    another thread wait for the next ones, before it runs callbacks.

    Parameters
    ----------
    carrier : Carrier
        Has the exchanges.

    Attributes
    ----------
    completions : Completions
        The ends of the exchanges of all calls that are kept.
    """

    def __init__(self, carrier: Carrier) -> None:
        self.completions: Completions = carrier.new_completions()
        self._calls: Dict[int, _Call] = {}
        self._searching: List[_Call] = []
        self._tokens = itertools.count(1)
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # has the thread that waits for ends
        self._search_turn = threading.Lock()
        self._threads: List[threading.Thread] = []
        self._idle = 0  # threads that wait for ends, or for their turn to do so
        self._ends = False

    def new_token(self) -> int:
        """Return a token for the exchanges of a call."""
        return next(self._tokens)

    def keep(self, call: _Call, token: int) -> None:
        """Keep a call until it has ended."""
        with self._lock:
            self._calls[token] = call
            if call.is_searching():
                self._searching.append(call)
            self._have_idle()
        call.on_end(lambda: self._calls.pop(token, None))
        if call.is_searching():
            self.completions.wake()

    def close(self) -> None:
        """End the threads.  Blocks until callbacks that run have returned."""
        self._ends = True
        self.completions.wake()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _have_idle(self) -> None:
        """Start a thread if none is there that waits.  The caller holds the lock."""
        if self._idle or self._ends:
            return
        self._idle += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._run, name="bytescheduler-calls", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        while True:
            with self._turn:
                if self._ends:
                    return
                ended = set(self.completions.wait(_LOOK_MS if self._searching else _WAIT_MS))
                if not ended and not self._searching:
                    continue
                with self._lock:
                    self._idle -= 1
                    self._have_idle()
            for token in ended:
                self._look_at(token)
            self._search()
            with self._lock:
                if self._idle >= _MOST_IDLE:
                    return
                self._idle += 1

    def _look_at(self, token: int) -> None:
        """Poll a call; a variable of the thread's loop would keep its tensors until the next."""
        call = self._calls.get(token)
        if call is not None:
            _poll(call)

    def _search(self) -> None:
        """Poll searches, unless another thread does, which a silent store may hold up."""
        if not self._searching or not self._search_turn.acquire(blocking=False):
            return
        try:
            for call in list(self._searching):
                _poll(call)
            with self._lock:
                self._searching = [call for call in self._searching if call.is_searching()]
        finally:
            self._search_turn.release()
