"""Bytes of one worker for all of them, bit for bit.

Sums of whole numbers are exact.  So every worker but one sends zeros, and NaN, -0.0 and denormals
arrive as they are.  A few keys of fixed sizes carry any number of bytes, again and again.
"""

from typing import Dict, List, NamedTuple, Tuple

import torch

from bytescheduler._native import Pending
from bytescheduler._session.keys import EngineKeys
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["Relay"]

_WORD = 8
_SMALLEST = 4 << 10
_LARGEST = 4 << 20
_STEP = 8
# Messages of the largest size that are under way side by side.
_PLACES = 4


class _Place(NamedTuple):
    key: int
    send: torch.Tensor  # int64
    recv: torch.Tensor


class _Sent(NamedTuple):
    pending: Pending
    place: _Place
    begin: int
    size: int


def _fitting(size: int) -> int:
    """Return the bytes of the smallest message that holds `size`, or of the largest."""
    fits = _SMALLEST
    while fits < min(size, _LARGEST):
        fits *= _STEP
    return min(fits, _LARGEST)


class Relay:
    """Carries bytes; all workers call the same methods in the same order.

    Parameters
    ----------
    session : TorchSession
        Its sums carry them.
    """

    def __init__(self, session: TorchSession) -> None:
        self._session = session
        self._keys = EngineKeys(session)
        self._places: Dict[Tuple[int, int], _Place] = {}
        self._under_way: List[_Sent] = []
        session.count(self)

    def unfinished(self) -> List[Pending]:
        """See `Source`."""
        return [each.pending for each in self._under_way]

    def broadcast(self, data: torch.Tensor, root: int) -> None:
        """Overwrite `data`, a vector of uint8, with that of worker `root`.  Blocks."""
        self._carry(data, 0, data.numel() if self._session.rank == root else 0)

    def gather(self, data: torch.Tensor, begin: int, end: int) -> None:
        """Fill `data`, a vector of uint8, of which this worker gives `begin` to `end`.  Blocks."""
        self._carry(data, begin, end)

    def _carry(self, data: torch.Tensor, begin: int, end: int) -> None:
        at, turn = 0, 0
        while at < data.numel():
            place = self._place(_fitting(data.numel() - at), turn % _PLACES)
            size = min(data.numel() - at, place.send.numel() * _WORD)
            if len(self._under_way) == _PLACES:
                self._take(data)
            octets = place.send.zero_().view(torch.uint8)
            mine = slice(max(begin, at), min(end, at + size))
            if mine.start < mine.stop:
                octets[mine.start - at : mine.stop - at] = data[mine]
            pending = self._session.start(place.key, place.send, place.recv, 0)
            self._under_way.append(_Sent(pending, place, at, size))
            at, turn = at + size, turn + 1
        while self._under_way:
            self._take(data)

    def _take(self, data: torch.Tensor) -> None:
        sent = self._under_way[0]
        self._session.wait(sent.pending)
        self._under_way.pop(0)
        octets = sent.place.recv.view(torch.uint8)
        data[sent.begin : sent.begin + sent.size] = octets[: sent.size]

    def _place(self, size: int, turn: int) -> _Place:
        place = self._places.get((size, turn))
        if place is None:
            name = f"relay of {size} bytes, {turn}"
            key = self._keys.of([name])[name]
            send = torch.zeros(size // _WORD, dtype=torch.int64)
            place = _Place(key, send, torch.zeros_like(send))
            self._session.declare_tensors([(key, place.recv)])
            self._places[size, turn] = place
        return place
