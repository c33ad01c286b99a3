"""The parameters of this process whose gradients travel, so that none does so twice."""

import gc
import weakref
from typing import Dict, Tuple

import torch

from bytescheduler.errors import UsageError

__all__ = ["Wrapped", "wrapped"]

_Refs = Tuple["weakref.ref[torch.nn.Parameter]", "weakref.ref[object]"]


class Wrapped:
    """Knows for each parameter what sends its gradients, and keeps neither alive."""

    def __init__(self) -> None:
        self._owners: Dict[int, _Refs] = {}

    def check_free(self, param: torch.nn.Parameter, name: str) -> None:
        """Raise UsageError if something sends its gradients already."""
        if not self._is_owned(param):
            return
        gc.collect()  # an optimizer that was dropped may be in a circle of references
        if not self._is_owned(param):
            return
        raise UsageError(
            f"{name}: its gradients are averaged already, so the model or its optimizer is wrapped "
            "twice; wrap once, in DistributedOptimizer or in DistributedDataParallel, or call "
            "close() of the first",
            5,
        )

    def _is_owned(self, param: torch.nn.Parameter) -> bool:
        owned = self._owners.get(id(param))
        return owned is not None and owned[0]() is param and owned[1]() is not None

    def collect_all_but(self, owner: object) -> None:
        """Collect garbage if anything but `owner` sends gradients: it may be garbage."""
        self._owners = {
            number: refs for number, refs in self._owners.items() if refs[1]() is not None
        }
        if any(sender() is not owner for _, sender in self._owners.values()):
            gc.collect()  # an optimizer and its parts refer to each other

    def take(self, param: torch.nn.Parameter, owner: object) -> None:
        """Note that `owner` sends its gradients, as long as it lives."""
        self._owners[id(param)] = weakref.ref(param), weakref.ref(owner)

    def release(self, param: torch.nn.Parameter, owner: object) -> None:
        """Undo `take`."""
        owned = self._owners.get(id(param))
        if owned is not None and owned[1]() is owner:
            del self._owners[id(param)]


_WRAPPED = Wrapped()


def wrapped() -> Wrapped:
    """Return those of this process."""
    return _WRAPPED
