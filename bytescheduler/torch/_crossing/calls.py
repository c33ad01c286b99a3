"""Calls of modules while updates wait, of scripted and traced ones too, whose weights C++ reads."""

import weakref
from typing import Any, Optional

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from bytescheduler.torch._crossing.waiting import make_ready

__all__ = ["Calls"]


class Calls:
    """Makes the weights of every module of this process ready before it runs, on demand."""

    def __init__(self) -> None:
        self._end: Optional[Any] = None

    def hear(self) -> None:
        """Begin."""
        if self._end is None:
            self._end = weakref.finalize(self, register_module_forward_pre_hook(_before).remove)

    def rest(self) -> None:
        """End, as each call of a module costs more meanwhile."""
        end, self._end = self._end, None
        if end is not None:
            end()


def _before(module: torch.nn.Module, args: object) -> None:
    if isinstance(module, torch.jit.ScriptModule):  # its parts are called by C++
        make_ready(module.parameters())
    else:
        make_ready(param for param in module._parameters.values() if param is not None)
