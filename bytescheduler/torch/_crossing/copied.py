"""The attributes of a module for its copies and pickles, when its weights are the newest."""

import weakref
from typing import Any, Callable

import torch

__all__ = ["Copied"]

_NAME = "__getstate__"


class Copied:
    """Stands in a module for `__getstate__`, which `copy` and `pickle` call before they read.

    Parameters
    ----------
    module : Module
        Has this attribute from now on, unless its class copies itself in ways of its own.
    flush : callable
        Called before each copy.
    """

    def __init__(self, module: torch.nn.Module, flush: Callable[[], None]) -> None:
        self._module = weakref.ref(module)
        self._flush = flush
        kind = type(module)
        usual = [getattr(kind, name, None) is getattr(object, name, None) for name in _WAYS]
        if all(usual) and _NAME not in module.__dict__:
            module.__dict__[_NAME] = self

    def __call__(self) -> Any:  # noqa: ANN401
        """Return what the class has for a copy, without this."""
        module = self._module()
        assert module is not None
        self._flush()
        # Not in it meanwhile, as a class may copy the attributes to anywhere in what it returns.
        del module.__dict__[_NAME]
        try:
            return _state_of(module)
        finally:
            module.__dict__[_NAME] = self

    def remove(self) -> None:
        """Leave the module as it was."""
        module = self._module()
        if module is not None and module.__dict__.get(_NAME) is self:
            del module.__dict__[_NAME]


_WAYS = ("__reduce__", "__reduce_ex__", "__deepcopy__", "__copy__")


def _state_of(module: torch.nn.Module) -> Any:  # noqa: ANN401
    get_state = getattr(type(module), _NAME, None)
    # Python's own, since 3.11, returns the dictionary itself.
    return dict(module.__dict__) if get_state is None else get_state(module)
