"""Guards that rest: their weights are the newest, so their modules are called without a hook."""

from typing import Any, Dict, Iterable, List, Optional, Protocol

from bytescheduler.torch._crossing.compilers import COMPILES_HOOKS, tells_begin
from bytescheduler.torch._gradients.bundle import Bundle
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Hook", "Resting"]


class Hook(Protocol):
    """A guard."""

    slots: List[Slot]
    handle: Any  # torch.utils.hooks.RemovableHandle


class Resting:
    """Takes guards off their modules from the update of a bundle to the next step.

    It knows guards whose weights are of one bundle, on modules without modules within.  Compilers
    look for hooks once, so no guard rests where code is compiled.
    """

    def __init__(self) -> None:
        self._guards: Dict[Bundle[Slot], List[Hook]] = {}
        self._may_rest = tells_begin() and not COMPILES_HOOKS

    def add(self, guard: Hook) -> None:
        """Let a new guard rest, or one that has more weights than before."""
        bundles = {slot.bundle for slot in guard.slots}
        for guards in self._guards.values():
            if guard in guards:
                guards.remove(guard)
                _wake(guard)
        first: Optional[Bundle[Slot]] = guard.slots[0].bundle if guard.slots else None
        if self._may_rest and first is not None and len(bundles) == 1:
            self._guards.setdefault(first, []).append(guard)

    def rest(self, bundles: Iterable[Bundle[Slot]]) -> None:
        """Take the guards of updated bundles off."""
        for bundle in bundles:
            for guard in self._guards.get(bundle, ()):
                hooks = guard.handle.hooks_dict_ref()
                if hooks is not None:
                    hooks.pop(guard.handle.id, None)

    def wake(self) -> None:
        """Put all guards back."""
        for guards in self._guards.values():
            for guard in guards:
                _wake(guard)

    def end(self) -> None:
        """Put all guards back; none rests any more."""
        self.wake()
        self._guards.clear()
        self._may_rest = False


def _wake(guard: Hook) -> None:
    hooks = guard.handle.hooks_dict_ref()
    if hooks is not None:
        hooks[guard.handle.id] = guard
        hooks.move_to_end(guard.handle.id, last=False)
