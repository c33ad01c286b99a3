"""A guard: the wait before a module uses its weights."""

import weakref
from typing import Any, Callable, List, Optional, Tuple

import torch

from bytescheduler.torch._crossing.compiling import COMPILES_HOOKS, is_compiling
from bytescheduler.torch._crossing.updates import Updates
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Guard", "Passive"]

_WHY = (
    "bytescheduler waits for a module's weights here, which breaks the graph: compile without "
    "fullgraph=True, or pass crossing=False to DistributedOptimizer"
)


class Passive:
    """Stands for a guard in a copy of a module, which has no updates to wait for."""

    def __call__(self, module: torch.nn.Module, args: Tuple[Any, ...]) -> None:
        """Do nothing."""


def _apart(call: Callable[[], None]) -> Callable[[], None]:
    """Return `call` as compilers leave it alone."""
    try:
        return torch.compiler.disable(call, reason=_WHY)  # type: ignore[no-any-return]
    except TypeError:  # PyTorch before 2.7 takes no reason
        return torch.compiler.disable(call)  # type: ignore[no-any-return]


class Guard:
    """A forward pre-hook that updates the weights that the module is about to use.

    Parameters
    ----------
    updates : Updates
        Not kept alive.
    on_run : callable
        Called with the guard before its first run.
    """

    def __init__(self, updates: Updates, on_run: Callable[["Guard"], None]) -> None:
        self.slots: List[Slot] = []
        self._updates = weakref.ref(updates)
        self._on_run: Optional[Callable[[Guard], None]] = on_run
        self._wait_apart = _apart(self.wait)

    def __call__(self, module: torch.nn.Module, args: Tuple[Any, ...]) -> None:
        """Wait for the weights and update them."""
        if COMPILES_HOOKS:
            self._wait_apart()
        elif is_compiling():
            if self.slots or not torch.is_grad_enabled():
                self._wait_apart()
        else:
            self.wait()

    @property
    def has_run(self) -> bool:
        """True once the module has run."""
        return self._on_run is None

    def wait(self) -> None:
        """Update all slots that are ARMED, and note that this module waits for them.  Blocks.

        Without gradients all updates are made: no gradient tells of a weight that a module uses
        and does not wait for.
        """
        if self._on_run is not None:
            on_run, self._on_run = self._on_run, None
            on_run(self)
        updates = self._updates()
        if updates is None or not (updates.waiting or updates.ahead or updates.marked):
            return
        if torch.is_grad_enabled():
            updates.apply(self.slots)
        else:
            updates.flush()

    def __deepcopy__(self, memo: object) -> Passive:
        """Return no guard: a copied module has weights of its own."""
        return Passive()

    def __reduce__(self) -> Tuple[type, Tuple[()]]:
        """Let a module be pickled; where it is loaded, nothing is to wait for."""
        return Passive, ()
