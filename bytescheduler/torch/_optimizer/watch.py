"""The watch over a wrapped optimizer: its own `step` is refused, and its state is the newest."""

import contextlib
import weakref
from typing import Any, Callable, Iterator, List, Optional, Tuple

from bytescheduler.errors import UsageError

__all__ = ["Watch"]

_Optimizer = Any  # torch.optim.Optimizer


class Watch:
    """Hooks of a wrapped optimizer, which keep neither this nor the wrapper alive.

    A step that a script calls on the optimizer itself would take this worker's own gradients.

    Parameters
    ----------
    inner : Optimizer
        The wrapped optimizer.
    flush : callable
        A bound method, called before `inner` tells its state.
    loaded : callable
        A bound method, called after `inner` has loaded a state.
    """

    def __init__(
        self, inner: _Optimizer, flush: Callable[[], None], loaded: Callable[[], None]
    ) -> None:
        self.is_stepping = False  # the wrapper itself steps
        self._flush = weakref.WeakMethod(flush)
        self._loaded = weakref.WeakMethod(loaded)
        self._handles: List[Any] = []
        self._add(inner, "step_pre_hook", _Refusal(inner, self))
        self._add(inner, "state_dict_pre_hook", _Newest(inner, self))  # old PyTorch has none
        self._add(inner, "load_state_dict_post_hook", _Loaded(inner, self))  # likewise

    def _add(self, inner: _Optimizer, kind: str, hook: Callable[..., None]) -> None:
        hooks = getattr(inner, f"_optimizer_{kind}s", None)
        if hooks is None:
            return
        # An earlier wrapper may have been dropped, and not closed.
        for key in [key for key, earlier in hooks.items() if type(earlier) is type(hook)]:
            del hooks[key]
        self._handles.append(getattr(inner, f"register_{kind}")(hook))

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """Let the optimizer step meanwhile."""
        before, self.is_stepping = self.is_stepping, True
        try:
            yield
        finally:
            self.is_stepping = before

    def flush(self) -> None:
        """Let the state be the newest.  Blocks."""
        flush = self._flush()
        if flush is not None:
            flush()

    def loaded(self) -> None:
        """Let the state be compared."""
        loaded = self._loaded()
        if loaded is not None:
            loaded()

    def close(self) -> None:
        """Leave the optimizer to the script."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Hook:
    """A hook of an optimizer; a copy of it, or one that another optimizer has, does nothing."""

    def __init__(self, inner: Optional[_Optimizer] = None, watch: Optional[Watch] = None) -> None:
        self._inner = None if inner is None else weakref.ref(inner)
        self._watch = None if watch is None else weakref.ref(watch)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), ()

    def is_of(self, optimizer: _Optimizer) -> bool:
        """Return whether this hook was made for `optimizer`."""
        return self._inner is not None and self._inner() is optimizer

    def watch(self) -> Optional[Watch]:
        """Return the watch, or None where the wrapper was dropped."""
        return None if self._watch is None else self._watch()


class _Refusal(_Hook):
    """Refuses a step that the wrapper does not make."""

    def __call__(self, optimizer: _Optimizer, *_: object) -> None:
        """See `register_step_pre_hook`."""
        watch = self.watch()
        if self.is_of(optimizer) and not (watch is not None and watch.is_stepping):
            raise UsageError(
                "step() of the wrapped optimizer was called directly; call step() of the optimizer "
                "that DistributedOptimizer returned, and keep that",
                5,
            )


class _Newest(_Hook):
    """Makes updates that wait."""

    def __call__(self, optimizer: _Optimizer) -> None:
        """See `register_state_dict_pre_hook`."""
        watch = self.watch()
        if self.is_of(optimizer) and watch is not None:
            watch.flush()


class _Loaded(_Hook):
    """Lets a state be compared that was loaded."""

    def __call__(self, optimizer: _Optimizer) -> None:
        """See `register_load_state_dict_post_hook`."""
        watch = self.watch()
        if self.is_of(optimizer) and watch is not None:
            watch.loaded()
