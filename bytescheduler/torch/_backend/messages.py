"""send and recv: messages of two ranks and a tag, counted, and those from any rank."""

import contextlib
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from bytescheduler._native import Completions
from bytescheduler._session.groups.carrier import Carrier
from bytescheduler._session.groups.members import Members
from bytescheduler.errors import PeerLost, Timeout
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.work import Work

__all__ = ["Messages", "Route", "Search"]

_LOOK_S = 0.002
# Rank of the sender, rank of the receiver, tag.
Route = Tuple[int, int, int]


class Messages:
    """Numbers the messages of each route, and tells receivers how many were sent.

    A receive from any rank has no key before its sender is known, so each sender notes the number
    of its messages in the store.

    Parameters
    ----------
    members : Members
        The group.
    store : Store
        That of torch.distributed.
    """

    def __init__(self, members: Members, store: Any) -> None:  # noqa: ANN401 - PyTorch's types
        self._members = members
        self._store = store
        self._own_store: Any = None
        self._numbers: Dict[Route, int] = {}
        self._lock = threading.Lock()
        self._connects = threading.Lock()

    def next_number(self, route: Route) -> int:
        """Count one more message of this route, and return its number."""
        with self._lock:
            return self._counted(route)

    def _counted(self, route: Route) -> int:
        number = self._numbers.get(route, 0) + 1
        self._numbers[route] = number
        return number

    def _note(self, route: Route) -> str:
        source, taker, tag = route
        return f"{self._members.identity} sent from {source} to {taker} with tag {tag}"

    def tell(self, route: Route) -> None:
        """Tell the receiver that one more message is on its way.

        A store that is gone matters to receives from any rank alone, which then end.
        """
        with contextlib.suppress(RuntimeError):
            self._store.add(self._note(route), 1)

    def find(self, tag: int) -> Optional[Tuple[Route, int]]:
        """Return a route to this rank with a message that no receive has, and count that one."""
        store = self._store_to_look_at()
        for source in self._members.without(self._members.rank):
            route = (source, self._members.rank, tag)
            note = self._note(route)
            if not store.check([note]):
                continue
            num_sent = int(store.get(note))
            with self._lock:  # `send` may not wait for a store that is silent
                if num_sent > self._numbers.get(route, 0):
                    return route, self._counted(route)
        return None

    def _store_to_look_at(self) -> Any:  # noqa: ANN401 - PyTorch's types are not read
        """Return a connection of its own: a script that waits in the store keeps the usual one."""
        with self._connects:
            if self._own_store is None:
                can_clone = hasattr(self._store, "clone")
                self._own_store = self._store.clone() if can_clone else self._store
        return self._own_store


class Search(Work):
    """A receive from any rank: it begins once a sender is known.

    Parameters
    ----------
    carrier : Carrier
        Has the exchanges.
    plan : Plan
        Without exchanges; it has the name of the call.
    find : callable
        Returns the plan of a message that was sent and its sender, or None.
    timeout_s : float
        The time of the whole call.
    """

    def __init__(
        self,
        carrier: Optional[Carrier],
        plan: Plan,
        find: Callable[[], Optional[Tuple[Plan, int]]],
        timeout_s: float,
    ) -> None:
        super().__init__(carrier, plan)
        self._find = find
        self._timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s
        self._has_begun = False
        self._begins = threading.Lock()
        self._completions: Optional[Completions] = None
        self._token = 0
        self._source = -1

    def watch(self, completions: Completions, token: int) -> None:
        """Give the exchanges to come their token."""
        self._completions, self._token = completions, token

    def poll(self) -> bool:
        """Look for a sender; then do as a call whose exchanges are under way."""
        if not self._has_begun and not self._done.is_set():
            with self._begins:
                if not self._has_begun:
                    self._look()
        return super().poll()

    def _look(self) -> None:
        failure = None if self._carrier is None else self._carrier.failure
        try:
            sent = None if failure is not None else self._find()
        except Exception as error:  # the store's
            text = f"the store of torch.distributed, which rank 0 may have, has failed: {error}"
            self.fail(PeerLost(text, 4))
            return
        if sent is not None:
            self._plan, self._source = sent
            self._has_begun = True
            self.start(self._timeout_s, self._completions, self._token)
        elif failure is not None:
            self.fail(failure)
        elif time.monotonic() >= self._end:
            self.fail(Timeout(f"no rank has sent a message within {self._timeout_s:g} s", 2))

    def is_searching(self) -> bool:
        """Return whether no sender is known yet."""
        return not self._has_begun and not self._done.is_set()

    def _wait_a_moment(self) -> None:
        if self._has_begun:
            super()._wait_a_moment()
        else:
            time.sleep(_LOOK_S)

    def _source_rank(self) -> int:
        return self._source

    source_rank = _source_rank
