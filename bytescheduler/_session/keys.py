"""The engine's keys of an owner: numbers that every worker computes alike."""

import hashlib
from typing import Callable, Dict, Iterable, Type, Union

from bytescheduler._native import FIRST_BOOKKEEPING_KEY
from bytescheduler._session.names import check_name
from bytescheduler._session.session import Session

__all__ = ["EngineKeys", "Key"]

Key = Union[int, str]


def _number(key: Key, error: Type[Exception]) -> int:
    """Return 63 bits."""
    if isinstance(key, str):
        check_name(key)
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
    if not 0 <= key < 2**63:
        raise error(f"key {key}: want 0 <= key < 2**63")
    return int(key)


class EngineKeys:
    """A number of its own for each key and each companion of a key.

    Parameters
    ----------
    session : Session
        Learns the names of the keys in errors and timelines.

    Raises
    ------
    session.error
        By both methods: a key is out of range, or two have the same number.
    UsageError
        By both methods: a name cannot be encoded.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._space = session.new_key_space()  # owners in a process share the job's keys
        self._taken: Dict[int, object] = {}

    def of(self, keys: Iterable[Key]) -> Dict[Key, int]:
        """Return a number for each of `keys`; after an error none is taken."""
        numbers = {key: self._of_value(key) for key in keys}
        new: Dict[int, object] = {}
        for key, number in numbers.items():
            self._take(new, number, key)
        self._taken.update(new)
        for key, number in numbers.items():
            self._session.name(number, key)
            if number != key:
                self._session.show(number, str(key))
        return numbers

    def beside(self, key: Key, companion: str) -> int:
        """Return the number of `companion`, which goes beside `key`; there need be no such key."""
        number = self._of_companion(key, companion)
        self._take(self._taken, number, f"{companion} of {key!r}")
        self._session.name(number, key)
        self._session.show(number, f"{companion} of {key}")
        return number

    def give_back(self, is_idle: Callable[[], bool]) -> None:
        """Give all keys back; see `Session.give_back`.  Afterwards none may be used."""
        numbers, self._taken = list(self._taken), {}
        self._session.give_back(numbers, is_idle)

    def bookkeeping(self, name: str) -> int:
        """Return the number of a key that is no tensor of the script.

        Timelines set it apart.
        """
        number = self._of_companion(name, "bookkeeping") | FIRST_BOOKKEEPING_KEY
        self._take(self._taken, number, name)
        self._session.name(number, name)
        self._session.show(number, name)
        return number

    def _of_value(self, key: Key) -> int:
        number = _number(key, self._session.error)
        return number if self._space == 0 else self._of_companion(key, "value")

    def _of_companion(self, key: Key, companion: str) -> int:
        check_name(key)
        text = f"{companion} of {type(key).__name__} {key} of space {self._space}"
        return _number(text, self._session.error)

    def _take(self, taken: Dict[int, object], number: int, name: object) -> None:
        holder = self._taken.get(number, taken.setdefault(number, name))
        if holder != name:
            raise self._session.error(
                f"keys {holder!r} and {name!r} have the same hash: rename one of them"
            )
