"""A look at every function that a forward pass calls: which module uses which weight."""

import threading
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from bytescheduler.torch._crossing.compiling import is_compiling
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Watch"]

_Values = Any  # the arguments of any function
# They tell of a tensor and read no element of it.
_READS_NOTHING = frozenset(
    ("dim", "element_size", "get_device", "is_contiguous", "is_complex", "is_floating_point")
    + ("data_ptr", "numel", "nelement", "register_hook", "requires_grad_", "size", "storage_offset")
    + ("stride", "untyped_storage", "__len__", "__hash__", "__repr__", "has_names", "is_inference")
)
# These properties make another tensor of the same memory.
_VIEWS = frozenset(("T", "mT", "H", "mH", "data", "real", "imag"))


def _reads(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "") in _VIEWS
    return name not in _READS_NOTHING and name not in ("__set__", "__delete__")


def _tensors(values: _Values) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments, also those in a list."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, torch.Tensor))


class Watch(TorchFunctionMode):  # type: ignore[misc]  # PyTorch's types are not read
    """Tells of each use of a weight, between `begin` and `end`.

    Parameters
    ----------
    slots : list of Slot
        Their weights are watched for.
    used : callable
        Gets the slot, and the innermost module that runs; it may raise.
    """

    def __init__(self, slots: List[Slot], used: Callable[[Slot, torch.nn.Module], None]) -> None:
        super().__init__()
        self._by_id: Dict[int, Slot] = {id(slot.param): slot for slot in slots}
        self._used = used
        self._stack: List[torch.nn.Module] = []
        self._handles: List[Any] = []
        self._thread = 0

    @property
    def is_on(self) -> bool:
        """True between `begin` and `end`."""
        return bool(self._handles)

    @property
    def is_here(self) -> bool:
        """True in the thread that called `begin`, which is the one that is watched."""
        return self._thread == threading.get_ident()

    def begin(self, root: torch.nn.Module) -> None:
        """Watch what `root`, which begins to run, and all modules under it do."""
        self._stack = [root]
        self._thread = threading.get_ident()
        self._handles = [
            register_module_forward_pre_hook(self._entered),
            register_module_forward_hook(self._left, always_call=True),
        ]
        self.__enter__()

    def end(self) -> None:
        """Watch nothing any more."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        if handles:
            self.__exit__(None, None, None)

    def _entered(self, module: torch.nn.Module, args: _Values) -> None:
        if is_compiling():  # nothing of this is traced
            return
        if self.is_here:
            self._stack.append(module)

    def _left(self, module: torch.nn.Module, args: _Values, output: _Values) -> None:
        if is_compiling():
            return
        if self.is_here and len(self._stack) > 1 and self._stack[-1] is module:
            self._stack.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: _Values,
        args: _Values = (),
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> _Values:
        """Look at the arguments of a call, and make it."""
        named = kwargs or {}
        if _reads(func):
            for tensor in _tensors((*args, *named.values())):
                slot = self._by_id.get(id(tensor))
                if slot is not None:
                    self._used(slot, self._stack[-1])
        return func(*args, **named)
