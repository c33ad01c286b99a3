"""A guard: the wait before a module uses its weights."""

import weakref
from typing import Any, List, NoReturn, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.compilers import COMPILES_HOOKS, apart, is_compiling
from bytescheduler.torch._crossing.updates import Updates
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Guard", "Passive"]

_WHY = (
    "bytescheduler waits for a module's weights here, which breaks the graph: compile without "
    "fullgraph=True, or pass crossing=False to DistributedOptimizer"
)


def _refuse_script(guard: object) -> NoReturn:
    """Say what to do where torch.jit.script asks a hook for what functions have."""
    raise UsageError(
        "torch.jit.script cannot compile the hooks of a wrapped model; script it before "
        "DistributedOptimizer, or call optimizer.close() first, or leave model= out",
        5,
    )


class Passive:
    """Stands for a guard in a copy of a module, which has no updates to wait for."""

    __name__ = "bytescheduler_no_guard"
    __globals__ = property(_refuse_script)

    def __call__(self, module: torch.nn.Module, args: Tuple[Any, ...]) -> None:
        """Do nothing."""


class Guard:
    """A forward pre-hook that updates the weights that the module is about to use.

    Parameters
    ----------
    updates : Updates
        Not kept alive.
    """

    __name__ = "bytescheduler_guard"
    __globals__ = property(_refuse_script)

    def __init__(self, updates: Updates) -> None:
        self.slots: List[Slot] = []
        self.handle: Any = None  # takes it off its module
        self.has_run = False
        self._updates = weakref.ref(updates)
        self._wait_apart = apart(self.wait, _WHY)

    def __call__(self, module: torch.nn.Module, args: Tuple[Any, ...]) -> None:
        """Wait for the weights and update them."""
        if COMPILES_HOOKS:
            self._wait_apart()
        elif is_compiling():
            if self.slots or not torch.is_grad_enabled():
                self._wait_apart()
        else:
            self.wait()

    def wait(self) -> None:
        """Update all slots that are ARMED.  Blocks.

        Without gradients all updates are made: PyTorch evaluates some modules as a whole in ways
        that it does not take with a weight that waits.
        """
        self.has_run = True
        updates = self._updates()
        if updates is None or not (updates.waiting or updates.marked or updates.look):
            return
        if torch.is_grad_enabled():
            updates.look.see(self.slots)
            updates.apply(self.slots)
        else:
            updates.look.pause()
            updates.flush()

    def __deepcopy__(self, memo: object) -> Passive:
        """Return no guard: a copied module has weights of its own."""
        return Passive()

    def __reduce__(self) -> Tuple[type, Tuple[()]]:
        """Let a module be pickled; where it is loaded, nothing is to wait for."""
        return Passive, ()
