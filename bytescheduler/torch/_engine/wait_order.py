"""The order in which calls are waited for: learned in a step, used from the next step on."""

import threading
import weakref
from typing import Counter, Dict, Hashable, Tuple

__all__ = ["URGENT", "Order", "Turn"]

# Priority of a call that a thread waits for; priorities of tensors of optimizers are below it.
URGENT = 1
_MOST_PLACES = 4096  # that are learned, and calls of an episode
_RANGE = 1 << 30  # how many other priorities there are
# Where in the loop a call stands: the first call of its episode, itself, how often it came before.
_Place = Tuple[Hashable, Hashable, int]


class Turn:
    """The part of a call in the order.

    Attributes
    ----------
    priority : int
        That of its exchanges until a thread waits for it.
    """

    def __init__(self, order: "Order", place: _Place, begun: int, priority: int) -> None:
        self._order = order
        self._place = place
        self._begun = begun
        self.priority = priority

    def waited_for(self) -> None:
        """Learn that a thread waits for the call now."""
        self._order.learn(self, self._place, self._begun)

    def leave(self) -> None:
        """Expect no wait: the script learns of the end in another way."""
        self._order.forget(self)


class Order:
    """Predicts how many waits come before the wait for a call.

    An episode lasts until no call is left that the script may wait for, such as a backward pass.
    It ends after 4096 calls too: a script may keep a call without a wait.  A call is found again in
    the next episode with the same first call.  A wrong prediction costs time alone: ranks may send
    in different orders.  Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits = 0
        self._open: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._first: Hashable = None
        self._counts: Counter[Hashable] = Counter()
        self._num_calls = 0  # in the episode
        self._distances: Dict[_Place, int] = {}

    def begin(self, call: Hashable) -> Turn:
        """Return the turn of a call.

        Parameters
        ----------
        call : hashable
            Equal for calls that do the same.
        """
        with self._lock:
            if not self._open or self._num_calls >= _MOST_PLACES:
                self._open.clear()
                self._first = call
                self._counts.clear()
                self._num_calls = 0
            self._num_calls += 1
            place = (self._first, call, self._counts[call])
            self._counts[call] += 1
            at = self._waits + self._distances.get(place, 1)
            turn = Turn(self, place, self._waits, -1 - at % _RANGE)
            self._open.add(turn)
        return turn

    def learn(self, turn: Turn, place: _Place, begun: int) -> None:
        """Take note of the first wait for a call."""
        with self._lock:
            if turn not in self._open:
                return
            self._open.discard(turn)
            self._waits += 1
            if len(self._distances) >= _MOST_PLACES and place not in self._distances:
                self._distances.clear()  # a loop with fewer calls is learned again
            self._distances[place] = self._waits - begun

    def forget(self, turn: Turn) -> None:
        """Let the call end its part in the episode without a wait."""
        with self._lock:
            self._open.discard(turn)
