"""Sums of single tensors, each under a name that all workers give alike."""

import heapq
import itertools
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from bytescheduler._session.keys import EngineKeys
from bytescheduler._session.names import check_name
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import Round
from bytescheduler.errors import UsageError

__all__ = ["NamedSums"]

# Rounds of tensors without a name that can be under way side by side, for each dtype and size.
_PLACES = 8
# Uses of other names after which a new name rests: its key is given back until its next use.
_PATIENCE = 10
# A name that comes again and again rests after this many times its longest gap, if that is short.
_GAPS = 4
_LONGEST_GAP = 512
_T = TypeVar("_T")


class _Key:
    """The key of a name, and the time of its latest use, in uses of all names."""

    __slots__ = ("dtype", "elements", "latest", "number", "patience", "rests")

    def __init__(self, number: int, dtype: str, elements: int, now: int) -> None:
        self.number = number
        self.dtype = dtype
        self.elements = elements
        self.latest = now
        self.patience = _PATIENCE  # uses of other names until it rests
        self.rests = True

    @property
    def due(self) -> int:
        return self.latest + self.patience

    def use(self, now: int) -> None:
        gap = now - self.latest
        if gap <= _LONGEST_GAP:
            self.patience = max(self.patience, _GAPS * gap)
        self.latest = now


class _Round(Generic[_T]):
    def __init__(self, pending: Optional[Round], finish: Callable[[], _T]) -> None:
        self.pending = pending  # None: there is nothing to send
        self.finish = finish


class _Together:
    """Several rounds, asked for together."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._rounds = rounds

    def over(self) -> bool:
        """See `Round`."""
        return all([pending.over() for pending in self._rounds])

    def wait(self) -> None:
        """See `Round`."""
        for pending in self._rounds:
            pending.wait()


class NamedSums(Generic[_T]):
    """Keeps rounds that were not asked for yet, and a key for each name.

    Tensors without a name share a few keys for each dtype and size, in the order of the calls.
    A name that was not used for a while rests: the servers forget it, until a next use.

    Parameters
    ----------
    session : RoundSession, optional
        The session that carries the tensors; None where this worker is alone.
    """

    def __init__(self, session: Optional[RoundSession]) -> None:
        self._session = session
        self._keys = None if session is None else EngineKeys(session)
        self._known: Dict[str, _Key] = {}
        self._uses = 0
        self._books: Dict[str, _Key] = {}  # bookkeeping: no tensors of the script
        self._awake: List[Tuple[int, str, bool]] = []  # a heap: when a name, of a book, may rest
        self._rounds: Dict[int, _Round[_T]] = {}
        self._numbers = itertools.count()
        self._calls: Dict[str, Iterator[int]] = {}
        if session is not None:
            session.count(self)

    def unfinished(self) -> List[Round]:
        """See `Source`."""
        return [kept.pending for kept in self._rounds.values() if kept.pending is not None]

    def at_end(self) -> None:
        """See `Source`: nothing is lost."""

    def over(self, number: int) -> bool:
        """Return whether a round is over; raise what it failed with."""
        pending = self._round(number).pending
        if pending is None or self._session is None:
            return True
        with self._session.translated():
            return pending.over()

    def finish(self, number: int) -> _T:
        """Return the result of a round, once.  Blocks."""
        done = self._round(number)
        del self._rounds[number]
        if done.pending is not None and self._session is not None:
            self._session.wait(done.pending)
        return done.finish()

    def declare(self, name: str) -> None:
        """Reserve a name; an error if another one has the same number."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"declare: want a name, got {name!r}", 5)
        check_name(name)
        if self._keys is not None:
            self._keys.of([name])

    def keep(self, pending: Optional[Round], finish: Callable[[], _T]) -> int:
        """Return the number to ask for a round, whose result `finish` makes when it is over."""
        number = next(self._numbers)
        self._rounds[number] = _Round(pending, finish)
        return number

    def change(self, number: int, change: Callable[[Any], Any]) -> int:
        """Let `finish` pass the result of a round through `change`; return `number`."""
        kept = self._round(number)
        self._rounds[number] = _Round(kept.pending, lambda: change(kept.finish()))
        return number

    def together(self, numbers: Sequence[int]) -> int:
        """Return a number for several rounds; its result is the list of their results."""
        all_kept = [self._round(number) for number in numbers]
        for number in numbers:
            del self._rounds[number]
        rounds = [kept.pending for kept in all_kept if kept.pending is not None]

        def finish() -> Any:  # noqa: ANN401
            return [kept.finish() for kept in all_kept]

        return self.keep(_Together(rounds) if rounds else None, finish)

    def key_of(
        self, name: Optional[str], dtype: str, elements: int, declare: Callable[[int], None]
    ) -> int:
        """Return the key of a name, which `declare` gets where it is new.

        Raises
        ------
        UsageError
            A tensor of another dtype or size had this name.
        """
        if name is None:
            kind = f"no name, {dtype} x {elements}"
            calls = self._calls.setdefault(kind, itertools.count())
            name = f"{kind}, {next(calls) % _PLACES}"
        declared = self._known.get(name)
        if declared is None:
            assert self._keys is not None
            number = self._keys.of([name])[name]
            declare(number)
            declared = self._known[name] = _Key(number, dtype, elements, self._uses)
        if (declared.dtype, declared.elements) != (dtype, elements):
            raise UsageError(
                f"push_pull of {name!r}: {elements} elements of {dtype}, before it had "
                f"{declared.elements} of {declared.dtype}; give tensors of another size another "
                "name",
                5,
            )
        self._note_use(name, declared, is_book=False)
        return declared.number

    def _note_use(self, name: str, key: _Key, *, is_book: bool) -> None:
        """Note a use of a name, and let names rest that were not used for long."""
        assert self._session is not None
        self._uses += 1
        key.use(self._uses)
        if key.rests:
            key.rests = False
            heapq.heappush(self._awake, (key.due, name, is_book))
        while self._awake[0][0] <= self._uses:
            _, oldest_name, in_books = self._awake[0]
            oldest = (self._books if in_books else self._known)[oldest_name]
            if oldest.due > self._uses:
                heapq.heapreplace(self._awake, (oldest.due, oldest_name, in_books))
                continue
            heapq.heappop(self._awake)
            oldest.rests = True
            self._session.let_rest(oldest.number)

    def bookkeeping_key(self, name: str, declare: Callable[[int], None]) -> int:
        """Return the key of numbers that are no tensor of the script; `declare` as of `key_of`.

        Numbers of another dtype or size have another name.
        """
        declared = self._books.get(name)
        if declared is None:
            assert self._keys is not None
            number = self._keys.bookkeeping(name)
            declare(number)
            declared = self._books[name] = _Key(number, "", 0, self._uses)
        self._note_use(name, declared, is_book=True)
        return declared.number

    def _round(self, number: int) -> _Round[_T]:
        if number not in self._rounds:
            raise UsageError(
                f"handle {number!r}: no such push-pull is under way; each handle that "
                "push_pull_async returned can be synchronised once",
                5,
            )
        return self._rounds[number]
