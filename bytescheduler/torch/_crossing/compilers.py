"""PyTorch's compiler: whether it traces a hook, calls that it leaves alone, and when it begins."""

import contextlib
import weakref
from typing import Any, Callable, ContextManager, Iterator, TypeVar

import torch

__all__ = [
    "COMPILES_HOOKS",
    "Compilations",
    "apart",
    "eagerly",
    "is_compiling",
    "not_compiling",
    "tells_begin",
]

_Call = TypeVar("_Call", bound=Callable[..., Any])
# PyTorch before 2.3 also compiles hooks that run between two graphs.
COMPILES_HOOKS = not hasattr(torch.compiler, "is_compiling")


def _question() -> Callable[[], bool]:
    try:
        return torch.compiler.is_compiling  # type: ignore[no-any-return]
    except AttributeError:  # PyTorch before 2.3; its compiler knows this one
        return torch._utils.is_compiling  # type: ignore[no-any-return]


# An alias, as compilers answer PyTorch's own function and not one that calls it.
is_compiling = _question()


def apart(call: _Call, reason: str) -> _Call:
    """Return `call` as compilers leave it alone."""
    try:
        return torch.compiler.disable(call, reason=reason)  # type: ignore[no-any-return]
    except TypeError:  # PyTorch before 2.7 takes no reason
        return torch.compiler.disable(call)  # type: ignore[no-any-return]


def eagerly() -> ContextManager[Any]:
    """Compile nothing inside, as a compilation that begins holds a lock of PyTorch's."""
    stance = getattr(torch.compiler, "set_stance", None)  # since PyTorch 2.6
    return contextlib.nullcontext() if stance is None else stance("force_eager")


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Let `torch.compiler.is_compiling` be false, as for code that no compiler reads."""
    flag = getattr(torch.compiler, "_is_compiling_flag", False)
    if flag:
        torch.compiler._is_compiling_flag = False
    try:
        yield
    finally:
        if flag:
            torch.compiler._is_compiling_flag = flag


def _handler() -> Any:  # noqa: ANN401 - PyTorch's types are not read
    """Return the callbacks around compilations; None: this PyTorch has none."""
    try:
        from torch._dynamo.callback import callback_handler  # any optimizer has imported it
    except ImportError:
        return None
    return callback_handler


def tells_begin() -> bool:
    """Return whether this PyTorch tells when its compiler begins."""
    return _handler() is not None


class Compilations:
    """Calls a method before the compiler looks at code, while this lives.

    Parameters
    ----------
    begins : bound method
        Not kept alive.
    """

    def __init__(self, begins: Callable[[], None]) -> None:
        method = weakref.WeakMethod(begins)

        def call(*_: object) -> None:
            alive = method()
            if alive is not None:
                alive()

        handler = _handler()
        if handler is not None:
            handler.register_start_callback(call)
        self._remove = weakref.finalize(self, _removed, handler, call)

    def close(self) -> None:
        """Call nothing any more."""
        self._remove()


def _removed(handler: Any, call: Callable[..., None]) -> None:  # noqa: ANN401 - as above
    if handler is not None and call in handler.start_callbacks:
        handler.remove_start_callback(call)
