"""A look at the first forward pass: the weights whose uses are seen, and their order."""

import sys
from types import FrameType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from bytescheduler.torch._crossing.waiting import Use, end_wait, let_wait
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Look"]

_CALL = torch.nn.Module._call_impl.__code__

# A script copies, saves or sets weights by these, also before a forward pass.
_OUTSIDE_OF_FORWARD = frozenset(
    ("__repr__", "__set__", "clone", "cpu", "data_ptr", "detach", "item", "numpy", "register_hook")
    + ("register_post_accumulate_grad_hook", "to", "tolist", "untyped_storage")
)


class Look:
    """Lets weights wait for their first use, and takes note of it; see `User`."""

    gradients = False

    def __init__(self) -> None:
        self._order: Dict[Slot, int] = {}
        self._slots: Dict[int, Slot] = {}  # by their parameters; no use in a call was seen yet
        self._is_paused = False

    def begin(self, slots: Iterable[Slot]) -> None:
        """Look for the first uses of more weights."""
        for slot in slots:
            self._slots[id(slot.param)] = slot
            let_wait(slot.param, self)

    def use(self, params: List[torch.Tensor]) -> None:
        """See `User`."""
        for param in params:
            end_wait(param)

    def overwrite(self, params: List[torch.Tensor]) -> None:
        """See `User`."""
        self.use(params)

    def see_gradient(self, param: torch.Tensor, *, replaced: bool) -> None:
        """See `User`."""

    def used(self, params: List[torch.Tensor], use: Optional[Use]) -> None:
        """See `User`."""
        is_forward = use is not None and _is_forward(*use)
        for slot in [self._slots[id(param)] for param in params if id(param) in self._slots]:
            if is_forward and _is_in_call(slot.param):
                self.see([slot])
                continue
            if is_forward:
                self._place(slot)
            let_wait(slot.param, self)

    def see(self, slots: Iterable[Slot]) -> None:
        """Take note that a forward pass uses weights; what it uses first is the most urgent."""
        if self._is_paused:
            self._is_paused = False
            self.begin(list(self._slots.values()))
        for slot in slots if self else ():
            if self._slots.pop(id(slot.param), None) is not None:
                end_wait(slot.param)
            self._place(slot)

    def _place(self, slot: Slot) -> None:
        slot.priority = -self._order.setdefault(slot, len(self._order))

    def pause(self) -> None:
        """Let weights not wait until the next use that is seen."""
        if self and not self._is_paused:
            self._is_paused = True
            for slot in self._slots.values():
                end_wait(slot.param)

    def end(self) -> Tuple[List[Slot], List[Slot]]:
        """Look no longer; return weights of which no use was seen, and weights outside of calls.

        The latter are used from Python, but in no call of a module that has them.  There code that
        Python does not see could use them too.
        """
        unseen: List[Slot] = []
        outside: List[Slot] = []
        for slot in self._slots.values():
            end_wait(slot.param)
            (outside if slot in self._order else unseen).append(slot)
        self._slots.clear()
        return unseen, outside

    @property
    def has_seen(self) -> bool:
        """Return whether a use of some weight was seen."""
        return bool(self._order)

    def __bool__(self) -> bool:
        """Return whether a use of some weight has not been seen yet."""
        return bool(self._slots)


def _is_in_call(param: torch.Tensor) -> bool:
    """Return whether a module is being called that has `param`, or whose own module has it.

    `MultiheadAttention` uses weights of a module within, which it does not call.
    """
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL:
            module: torch.nn.Module = frame.f_locals["self"]
            if any(value is param for part in _with_parts(module) for value in part):
                return True
        frame = frame.f_back
    return False


def _with_parts(module: torch.nn.Module) -> Iterator[Iterable[Optional[torch.Tensor]]]:
    yield module._parameters.values()
    for part in module.children():
        yield part._parameters.values()


def _is_forward(func: Callable[..., Any], args: Tuple[Any, ...]) -> bool:
    """Return whether a forward pass may call `func` so; it changes no weight in place."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return bool(func != torch.Tensor.data.__get__)
    if name in _OUTSIDE_OF_FORWARD:
        return False
    if not name.endswith("_") or name.endswith("__") or not args:
        return True
    changed = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    return not any(isinstance(value, torch.nn.Parameter) for value in changed)
