"""Guards that rest: their weights are the newest, so their modules are called without a hook."""

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Protocol

from bytescheduler.torch._crossing.compilers import COMPILES_HOOKS, tells_begin
from bytescheduler.torch._gradients.bundle import Bundle
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Hook", "Resting"]


class Hook(Protocol):
    """A guard."""

    slots: List[Slot]
    handle: Any  # torch.utils.hooks.RemovableHandle


class _Place(NamedTuple):
    """The place of a guard among the hooks of its module."""

    guard: Hook
    key: int
    hooks: Callable[[], Optional[Dict[int, Any]]]  # None: the module is gone


class Resting:
    """Takes guards off their modules from the update of a bundle to the next step.

    It knows guards whose weights are of one bundle, on modules without modules within.  Compilers
    look for hooks once, so no guard rests where code is compiled.
    """

    def __init__(self) -> None:
        self._places: Dict[Bundle[Slot], List[_Place]] = {}
        self._may_rest = tells_begin() and not COMPILES_HOOKS

    def add(self, guard: Hook) -> None:
        """Let a new guard rest, or one that has more weights than before."""
        bundles = {slot.bundle for slot in guard.slots}
        for places in self._places.values():
            for place in [place for place in places if place.guard is guard]:
                places.remove(place)
                _wake([place])
        first: Optional[Bundle[Slot]] = guard.slots[0].bundle if guard.slots else None
        if self._may_rest and first is not None and len(bundles) == 1:
            place = _Place(guard, guard.handle.id, guard.handle.hooks_dict_ref)
            self._places.setdefault(first, []).append(place)

    def rest(self, bundles: Iterable[Bundle[Slot]]) -> None:
        """Take the guards of updated bundles off."""
        for bundle in bundles:
            for _, key, hooks_of in self._places.get(bundle, ()):
                hooks = hooks_of()
                if hooks is not None:
                    hooks.pop(key, None)

    def wake(self) -> None:
        """Put all guards back."""
        for places in self._places.values():
            _wake(places)

    def end(self) -> None:
        """Put all guards back; none rests any more."""
        self.wake()
        self._places.clear()
        self._may_rest = False


def _wake(places: Iterable[_Place]) -> None:
    for guard, key, hooks_of in places:
        hooks: Any = hooks_of()
        if hooks is not None:
            hooks[key] = guard
            if len(hooks) > 1:
                hooks.move_to_end(key, last=False)
