"""The engine's keys of one store: numbers that every worker computes alike."""

import hashlib
from typing import Dict, Iterable

import mxnet as mx

from bytescheduler.mxnet._stores.tensor_session import TensorSession
from bytescheduler.mxnet._types import Key


def _number(key: Key) -> int:
    """Return 63 bits."""
    if isinstance(key, str):
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
    if not 0 <= key < 2**63:
        raise mx.base.MXNetError(f"key {key}: want 0 <= key < 2**63")
    return int(key)


class EngineKeys:
    """A number of its own for each key and for what goes beside it.

    Parameters
    ----------
    session : TensorSession
        Learns what errors call them.

    Raises
    ------
    MXNetError
        By both methods: a key is out of range, or two have the same number.
    """

    def __init__(self, session: TensorSession) -> None:
        self._session = session
        self._space = session.new_key_space()  # stores of one process share the job's keys
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

    def beside(self, key: Key, what: str) -> int:
        """Return the number of `what`, which goes beside `key`; there need be no such key."""
        number = self._of_companion(key, what)
        self._take(self._taken, number, f"{what} of {key!r}")
        self._session.name(number, key)
        self._session.show(number, f"{what} of {key}")
        return number

    def _of_value(self, key: Key) -> int:
        number = _number(key)
        return number if self._space == 0 else self._of_companion(key, "value")

    def _of_companion(self, key: Key, what: str) -> int:
        return _number(f"{what} of {type(key).__name__} {key} of store {self._space}")

    def _take(self, taken: Dict[int, object], number: int, name: object) -> None:
        other = self._taken.get(number, taken.setdefault(number, name))
        if other != name:
            raise mx.base.MXNetError(
                f"keys {other!r} and {name!r} have the same hash: rename one of them"
            )
