"""Bytes of one worker for all of them, bit for bit."""

import ctypes
from typing import Dict, Tuple

from bytescheduler._session.keys import EngineKeys
from bytescheduler._session.round_session import RoundSession

__all__ = ["Relay"]

_SMALLEST = 4 << 10
_LARGEST = 4 << 20
_STEP = 8
# Messages of the largest size that travel side by side.
_PLACES = 4
# Servers keep the memory of smaller messages; a larger one is given back until its next use.
_MOST_KEPT = 256 << 10


def _fitting(size: int) -> int:
    """Return the bytes of the smallest message that holds `size`, or of the largest."""
    fits = _SMALLEST
    while fits < min(size, _LARGEST):
        fits *= _STEP
    return min(fits, _LARGEST)


def _address_of(part: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(part))


class Relay:
    """Carries bytes; all workers call it with the same sizes and roots in the same order.

    A few keys of fixed sizes carry any number of bytes, again and again.

    Parameters
    ----------
    session : RoundSession
        Carries them.
    """

    def __init__(self, session: RoundSession) -> None:
        self._session = session
        self._keys = EngineKeys(session)
        self._known: Dict[Tuple[int, int], int] = {}

    def broadcast(self, data: memoryview, root: int, owner: object = None) -> None:
        """Overwrite `data`, writable bytes, with those of worker `root`.  Blocks.

        `owner` keeps the memory of `data` alive, where `data` itself does not.
        """
        for begin in range(0, len(data), _LARGEST * _PLACES):
            self._carry(data[begin : begin + _LARGEST * _PLACES], root, owner)

    def _carry(self, data: memoryview, root: int, owner: object) -> None:
        parts = [data[begin : begin + _LARGEST] for begin in range(0, len(data), _LARGEST)]
        last = parts[-1]
        size = _fitting(len(last))
        if len(last) < size:
            parts[-1] = memoryview(bytearray(size))
            parts[-1][: len(last)] = last
        keys = [self._key(len(part), turn) for turn, part in enumerate(parts)]
        memory = [(key, _address_of(part), len(part)) for key, part in zip(keys, parts)]
        self._session.broadcast_from(root, memory, owner=(parts, owner))
        for key, part in zip(keys, parts):
            if len(part) > _MOST_KEPT:
                self._session.let_rest(key)  # servers need no memory of it until the next use
        if len(last) < size:
            last[:] = parts[-1][: len(last)]

    def _key(self, size: int, turn: int) -> int:
        key = self._known.get((size, turn))
        if key is None:
            name = f"relay of {size} bytes, {turn}"
            key = self._known[size, turn] = self._keys.bookkeeping(name)
        return key
