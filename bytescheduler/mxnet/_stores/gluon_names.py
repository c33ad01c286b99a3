"""The names of a Trainer's parameters, and the order in which forward uses them."""

import functools
import sys
from typing import Any, Callable, Dict, Iterable, Optional

import mxnet as mx

from bytescheduler.mxnet._types import Array, Key

__all__ = ["GluonNames"]

_Trainer = Any  # mx.gluon.Trainer
# Calls between a Trainer and what asks here.
_MOST_FRAMES = 16


def _calling_trainer() -> Optional[_Trainer]:
    """Return the Trainer that a call comes from: it tells a store only numbers."""
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        caller = frame.f_locals.get("self")
        if isinstance(caller, mx.gluon.Trainer):
            return caller
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


class GluonNames:
    """Finds what timelines call a Trainer's keys.

    Parameters
    ----------
    show : callable
        Gets a key and its name.  The keys get their names once more as soon as the order in which
        forward uses them is known, in that order.
    finds_order : bool
        Whether that order is wanted; until it is known, `data` of parameters is watched.
    """

    def __init__(self, show: Callable[[Key, str], None], *, finds_order: bool) -> None:
        self._show = show
        self._finds_order = finds_order
        self._names: Dict[Key, str] = {}
        self._unused: Dict[int, Any] = {}  # trained parameters that forward has not used yet
        self._order: list[int] = []

    def declare(self, keys: Iterable[Key]) -> None:
        """Name new keys, if the call comes from a Trainer."""
        numbers = [key for key in keys if isinstance(key, int)]
        trainer = _calling_trainer() if numbers else None
        if trainer is None:
            return
        for key in numbers:
            if key < len(trainer._params):
                self._names[key] = str(trainer._params[key].name)
                self._show(key, self._names[key])
        if self._finds_order:
            self._finds_order = False
            self._watch(trainer)

    def repeat(self, keys: Iterable[Key]) -> None:
        """Name keys again that travel as others from now on."""
        for key in keys:
            if key in self._names:
                self._show(key, self._names[key])

    def _watch(self, trainer: _Trainer) -> None:
        for index, param in enumerate(trainer._params):
            if param.grad_req != "null":
                self._unused[index] = param
                param.data = functools.partial(self._used, index, param.data)

    def _used(
        self, index: int, data: Callable[..., Array], *args: object, **kwargs: object
    ) -> Array:
        # A script may look at weights between steps; forward is what autograd records.
        if mx.autograd.is_recording() and index in self._unused:
            self._order.append(index)
            vars(self._unused.pop(index)).pop("data", None)
            if not self._unused:
                self.repeat(self._order)
        return data(*args, **kwargs)
