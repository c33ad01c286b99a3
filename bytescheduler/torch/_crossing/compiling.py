"""The question whether a compiler traces the hook that asks."""

from typing import Callable

import torch

__all__ = ["COMPILES_HOOKS", "is_compiling"]

# PyTorch before 2.3 also compiles hooks that run between two graphs.
COMPILES_HOOKS = not hasattr(torch.compiler, "is_compiling")


def _question() -> Callable[[], bool]:
    try:
        return torch.compiler.is_compiling  # type: ignore[no-any-return]
    except AttributeError:  # PyTorch before 2.3; its compiler knows this one
        return torch._utils.is_compiling  # type: ignore[no-any-return]


# An alias, as compilers answer PyTorch's own function and not one that calls it.
is_compiling = _question()
