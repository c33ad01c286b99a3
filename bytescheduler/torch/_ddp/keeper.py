"""A reference from a module to its wrapper, which copies and pickles of the module leave out."""

from typing import Tuple

import torch

__all__ = ["keep_alive", "let_go"]

_ATTRIBUTE = "_bytescheduler_wrapper"


class _Keeper:
    """Holds an object; a copy of it is None.

    A hook of a parameter must not hold it: the collector of garbage does not see references of
    such hooks, so nothing would ever be freed.
    """

    def __init__(self, held: object) -> None:
        self.held = held

    def __deepcopy__(self, memo: object) -> None:
        """Return None: a copied module has no wrapper."""

    def __reduce__(self) -> Tuple[type, Tuple[()]]:
        """Let a module be pickled, and loaded without this package."""
        return type(None), ()


def keep_alive(held: object, module: torch.nn.Module) -> None:
    """Let `held` live as long as `module`, or any module in it that has parameters."""
    keeper = _Keeper(held)
    for part in module.modules():
        if part is module or part._parameters:
            part.__dict__[_ATTRIBUTE] = keeper  # no part of a state, so not by setattr


def let_go(module: torch.nn.Module) -> None:
    """Undo `keep_alive`."""
    for part in module.modules():
        part.__dict__.pop(_ATTRIBUTE, None)
