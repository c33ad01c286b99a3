"""Bytes of one worker for all of them, bit for bit."""

from typing import Dict, List, Tuple

import torch

from bytescheduler._session.keys import EngineKeys
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["Relay"]

_SMALLEST = 4 << 10
_LARGEST = 4 << 20
_STEP = 8
# Messages of the largest size that travel side by side.
_PLACES = 4


def _fitting(size: int) -> int:
    """Return the bytes of the smallest message that holds `size`, or of the largest."""
    fits = _SMALLEST
    while fits < min(size, _LARGEST):
        fits *= _STEP
    return min(fits, _LARGEST)


class Relay:
    """Carries bytes; all workers call it with the same sizes and roots in the same order.

    A few keys of fixed sizes carry any number of bytes, again and again.

    Parameters
    ----------
    session : TorchSession
        Carries them.
    """

    def __init__(self, session: TorchSession) -> None:
        self._session = session
        self._keys = EngineKeys(session)
        self._known: Dict[Tuple[int, int], int] = {}

    def broadcast(self, data: torch.Tensor, root: int) -> None:
        """Overwrite `data`, a vector of uint8, with that of worker `root`.  Blocks."""
        for begin in range(0, data.numel(), _LARGEST * _PLACES):
            self._carry(data[begin : begin + _LARGEST * _PLACES], root)

    def _carry(self, data: torch.Tensor, root: int) -> None:
        parts: List[torch.Tensor] = []
        for part in data.split(_LARGEST):
            size = _fitting(part.numel())
            if part.numel() < size:  # only the last one
                whole = torch.zeros(size, dtype=torch.uint8, device="cpu")
                whole[: part.numel()] = part
                part = whole
            parts.append(part)
        keys = [self._key(part.numel(), turn) for turn, part in enumerate(parts)]
        self._session.broadcast_from(root, list(zip(keys, parts)))
        last = data.split(_LARGEST)[-1]
        if last.numel() < parts[-1].numel():
            last.copy_(parts[-1][: last.numel()])

    def _key(self, size: int, turn: int) -> int:
        key = self._known.get((size, turn))
        if key is None:
            name = f"relay of {size} bytes, {turn}"
            key = self._known[size, turn] = self._keys.of([name])[name]
        return key
