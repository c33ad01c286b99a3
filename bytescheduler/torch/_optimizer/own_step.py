"""The time in which an optimizer's own code steps: not its hooks, and not a closure."""

import contextlib
from typing import Any, Callable, Dict, Iterator

__all__ = ["OwnStep"]

_Optimizer = Any  # torch.optim.Optimizer
_Hooks = Dict[Any, Callable[..., None]]


class OwnStep:
    """Calls `begin` and `end` around an optimizer's own code, as often as that is interrupted.

    Parameters
    ----------
    inner : Optimizer
        The optimizer.
    begin, end : callable
        They take turns.
    """

    def __init__(
        self, inner: _Optimizer, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._begin = begin
        self._end = end
        self._depth = 0  # a step may call that of its base, which has the same hooks
        self._is_running = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the step that is made meanwhile."""
        if not getattr(type(self._inner).step, "hooked", False):  # no hook is called
            self._run()
            try:
                yield
            finally:
                self._stop()
            return
        before: _Hooks = self._inner._optimizer_step_pre_hooks
        after: _Hooks = self._inner._optimizer_step_post_hooks
        first, last = object(), object()
        _put_first(before, first, self._before_hooks)
        before[last] = self._after_pre_hooks
        _put_first(after, first, self._before_post_hooks)
        after[last] = self._after_hooks
        try:
            yield
        finally:
            self._depth, self._is_running = 0, False
            for hooks in (before, after):
                hooks.pop(first, None)
                hooks.pop(last, None)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what happens meanwhile, such as a closure."""
        was_running = self._is_running
        self._stop()
        yield
        if was_running:
            self._run()

    def _run(self) -> None:
        self._is_running = True
        self._begin()

    def _stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._end()

    def _before_hooks(self, *_: object) -> None:
        self._stop()

    def _after_pre_hooks(self, *_: object) -> None:
        self._depth += 1
        self._run()

    def _before_post_hooks(self, *_: object) -> None:
        self._depth -= 1
        self._stop()

    def _after_hooks(self, *_: object) -> None:
        if self._depth > 0:
            self._run()


def _put_first(hooks: _Hooks, key: object, hook: Callable[..., None]) -> None:
    items = list(hooks.items())
    hooks.clear()
    hooks[key] = hook
    hooks.update(items)
