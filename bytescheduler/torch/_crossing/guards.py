"""The guards of a model: one on each module that has weights, of its own or within."""

from typing import Any, Dict, List

import torch

from bytescheduler.torch._crossing.guard import Guard
from bytescheduler.torch._crossing.updates import Updates
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Guards"]


class Guards:
    """Lets the modules of a model wait for their weights, each for all of its own at once.

    Parameters
    ----------
    model : Module
        Its modules are guarded.
    updates : Updates
        Made by the guards.
    slots : list of Slot
        The weights to guard.
    """

    def __init__(self, model: torch.nn.Module, updates: Updates, slots: List[Slot]) -> None:
        self._model = model
        self._updates = updates
        self._guards: Dict[torch.nn.Module, Guard] = {}
        self._handles: List[Any] = []
        self.add(slots)

    def add(self, slots: List[Slot]) -> None:
        """Guard more weights, in the modules that own them, and for evaluation in those above."""
        new = {id(slot.param): slot for slot in slots}
        for module in self._model.modules():
            owned = [
                new[id(param)] for param in module.parameters(recurse=False) if id(param) in new
            ]
            if owned or any(id(param) in new for param in module.parameters()):
                self._guard(module, owned)

    def _guard(self, module: torch.nn.Module, slots: List[Slot]) -> None:
        guard = self._guards.get(module)
        if guard is None:
            guard = self._guards[module] = Guard(self._updates)
            guard.handle = module.register_forward_pre_hook(guard, prepend=True)
            self._handles.append(guard.handle)
        new = [slot for slot in slots if slot not in guard.slots]
        guard.slots += new
        for slot in new:
            slot.guards += 1
        if next(module.children(), None) is None:
            self._updates.resting.add(guard)

    def close(self) -> None:
        """Take all hooks off the model."""
        self._updates.resting.end()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def cover_uncalled(self) -> None:
        """Look back at the first pass, when backward has made gradients.

        The nearest module above waits for weights of modules that were not called: it uses them
        itself, as `MultiheadAttention` does.
        """
        paths = dict(self._model.named_modules())
        for path, module in paths.items():
            guard = self._guards.get(module)
            if guard is None or guard.has_run:
                continue
            used = [slot for slot in guard.slots if slot.param.grad is not None]
            above = path
            while above and used:
                above = above.rpartition(".")[0]
                parent = self._guards.get(paths[above])
                if parent is not None and parent.has_run:
                    self._guard(paths[above], used)
                    self._updates.look.see(used)
                    break
