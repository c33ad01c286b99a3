"""The thread that ends calls for which no other thread waits."""

import itertools
import threading
from typing import Callable, Dict, List, Optional, Protocol

from bytescheduler._native import Completions
from bytescheduler.torch._backend.carrier import Carrier

__all__ = ["Completer"]

_WAIT_MS = 1000
_LOOK_MS = 2  # while a call waits for something that is no exchange


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
        self._thread: Optional[threading.Thread] = None
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
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="bytescheduler-calls", daemon=True
                )
                self._thread.start()
        call.on_end(lambda: self._calls.pop(token, None))
        if call.is_searching():
            self.completions.wake()

    def close(self) -> None:
        """End the thread.  Blocks until a callback that runs has returned."""
        self._ends = True
        self.completions.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._ends:
            ended = set(self.completions.wait(_LOOK_MS if self._searching else _WAIT_MS))
            for token in ended:
                self._look_at(token)
            if self._searching:
                self._search()

    def _look_at(self, token: int) -> None:
        """Poll a call; a variable of the thread's loop would keep its tensors until the next."""
        call = self._calls.get(token)
        if call is not None:
            _poll(call)

    def _search(self) -> None:
        for call in list(self._searching):
            _poll(call)
        with self._lock:
            self._searching = [call for call in self._searching if call.is_searching()]
