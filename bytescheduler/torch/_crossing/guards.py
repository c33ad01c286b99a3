"""The guards of a model: one on each module that has weights, or is seen to use some."""

import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.compiling import is_compiling
from bytescheduler.torch._crossing.copied import Copied
from bytescheduler.torch._crossing.guard import Guard
from bytescheduler.torch._crossing.updates import Updates
from bytescheduler.torch._crossing.watch import Watch
from bytescheduler.torch._gradients.slot import ARMED, Slot

__all__ = ["Guards"]


class _Hook:
    """A hook that calls a method of an object that it does not keep alive."""

    def __init__(self, method: Callable[..., None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if is_compiling():  # compiled code is not watched
            return
        method = self._method()
        if method is not None:
            method()

    def __deepcopy__(self, memo: object) -> "_Nothing":
        return _Nothing()

    def __reduce__(self) -> Tuple[type, Tuple[()]]:
        return _Nothing, ()


class _Nothing:
    """Stands for a hook in a copy of a module."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Do nothing."""


class Guards:
    """Installs guards, and learns which module uses which weight, in which order.

    Parameters
    ----------
    model : Module
        The root; its forward is watched at first.
    updates : Updates
        Made by the guards.
    slots : list of Slot
        The weights to guard.
    watched : int
        How many forwards of the root are watched, and raise where a module uses a stale weight.
        After that one more is, each time the model changes between training and evaluation.
    """

    def __init__(
        self, model: torch.nn.Module, updates: Updates, slots: List[Slot], watched: int
    ) -> None:
        self._model = model
        self._updates = updates
        self._slots: List[Slot] = []
        self._guards: Dict[torch.nn.Module, Guard] = {}
        self._handles: List[Any] = []
        self._to_watch = watched
        self._was_training: Optional[bool] = model.training
        self._order: Dict[Slot, int] = {}
        self._watch: Optional[Watch] = None
        self.runs = 0  # guards that have run at least once
        self._has_watched = False
        self.add(slots)
        self._hook_root()

    # -- installing ----------------------------------------------------------------------------

    def add(self, slots: List[Slot]) -> None:
        """Guard more weights, in the modules that own them.

        What has such modules within waits too, for evaluation: it may use their weights itself.
        """
        new = {id(slot.param): slot for slot in slots}
        self._slots += slots
        for module in self._model.modules():
            owned = [
                new[id(param)] for param in module.parameters(recurse=False) if id(param) in new
            ]
            if owned or any(id(param) in new for param in module.parameters()):
                self._guard(module, owned)

    def guard(self, module: torch.nn.Module, params: List[torch.nn.Parameter]) -> None:
        """Let `module` wait for weights of other modules that it uses."""
        by_id = {id(slot.param): slot for slot in self._slots}
        slots = [by_id[id(param)] for param in params if id(param) in by_id]
        if slots:
            self._guard(module, slots)

    def _guard(self, module: torch.nn.Module, slots: List[Slot]) -> None:
        guard = self._guards.get(module)
        if guard is None:
            guard = self._guards[module] = Guard(self._updates, self._ran)
            self._handles.append(module.register_forward_pre_hook(guard, prepend=True))
        new = [slot for slot in slots if slot not in guard.slots]
        guard.slots += new
        for slot in new:
            slot.guards += 1

    def _hook_root(self) -> None:
        root = self._model
        self._guard(root, [])  # before anything is compiled, as later hooks are not called then
        begin, end = _Hook(self._begin), _Hook(self._end)
        self._handles += [
            root.register_forward_pre_hook(begin, prepend=True),
            root.register_forward_hook(end, always_call=True),
        ]
        # A state dict or a copy has the newest weights, and what is loaded is not overwritten.
        flush = _Hook(self._updates.flush)
        for module in root.modules():
            self._handles += [
                module.register_state_dict_pre_hook(flush),
                module._register_load_state_dict_pre_hook(flush),
                Copied(module, flush),
            ]

    def close(self) -> None:
        """Take all hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # -- learning ------------------------------------------------------------------------------

    def _ran(self, guard: Guard) -> None:
        """Note the place of a guard in the first forward: what is used first is most urgent."""
        self.runs += 1
        self._use_next(guard.slots)

    def _use_next(self, slots: List[Slot]) -> None:
        for slot in slots:
            slot.priority = -self._order.setdefault(slot, len(self._order))

    def _begin(self) -> None:
        """Begin a forward of the root."""
        changed = self._was_training is not self._model.training
        self._was_training = self._model.training
        # Without gradients all updates are made before, and PyTorch may take faster ways.
        if (self._to_watch <= 0 and not changed) or not torch.is_grad_enabled():
            return
        self._to_watch -= 1
        if self._watch is None or not self._watch.is_on:
            self._watch = Watch(self._slots, self._used)
            self._watch.begin(self._model)
            self._has_watched = True
            # So that a use without a guard is found however fast sums are.
            self._updates.takes_along = False

    def _end(self) -> None:
        if self._watch is not None and self._watch.is_here:
            self._watch.end()
            self._watch = None
            self._updates.takes_along = True

    def _used(self, slot: Slot, module: torch.nn.Module) -> None:
        if self._updates.applying:
            return
        if slot.state == ARMED:
            raise UsageError(
                f"{slot.name}: {type(module).__name__} uses it while its last update is pending, "
                "and does not own it; call optimizer.guard(module, [parameter]) with that module "
                "before training, or pass crossing=False",
                5,
            )
        self._updates.guarded(slot)
        guard = self._guards.get(module)
        if guard is None or slot not in guard.slots:
            self._guard(module, [slot])
        self._use_next([slot])

    def check_first(self) -> bool:
        """Look back at the first forward, when its first gradient comes.

        Return whether any guard has run.  Where no use was seen, as in compiled code, the nearest
        module that runs waits for the weights of those that were not called.
        """
        if not self._has_watched:
            self._cover_uncalled()
        return self.runs > 0

    def _cover_uncalled(self) -> None:
        paths = dict(self._model.named_modules())
        for path, module in paths.items():
            guard = self._guards.get(module)
            if guard is None or guard.has_run:
                continue
            above = path
            while above:
                above = above.rpartition(".")[0]
                parent = self._guards.get(paths[above])
                if parent is not None and (parent.has_run or not above):
                    self._guard(paths[above], guard.slots)
                    break
