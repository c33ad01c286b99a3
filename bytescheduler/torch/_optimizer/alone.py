"""The steps of an optimizer in a job of one worker, where nothing travels."""

import weakref
from typing import Any, Callable, Iterator, List, Optional

import torch

from bytescheduler.torch._gradients.nesterov import Nesterov
from bytescheduler.torch._optimizer.closures import Evaluations, evaluation
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.suited import check_momentum

__all__ = ["Alone"]

_Optimizer = Any  # torch.optim.Optimizer
_Closure = Optional[Callable[[], Any]]


class Alone:
    """Does with gradients what happens to them beside means.

    Parameters
    ----------
    inner : Optimizer
        Makes the updates.
    options : Options
        Checked.
    """

    def __init__(self, inner: _Optimizer, options: Options) -> None:
        self._inner = inner
        self._options = options
        self._evaluations = Evaluations(inner)
        mu = options.choice.mu
        self._nesterov = Nesterov(mu) if mu else None
        self._has_momentum = False  # the gradients that are there have it
        self._check_momentum()
        if mu:
            handles = [
                param.register_post_accumulate_grad_hook(_hook(self))
                for group in inner.param_groups
                for param in group["params"]
                if param.requires_grad
            ]
            weakref.finalize(self, _remove, handles).atexit = False

    def _check_momentum(self) -> None:
        evaluates = self._evaluations.are_made
        check_momentum(self._inner, self._options.choice, evaluates=evaluates)

    def step(self, closure: _Closure) -> Any:  # noqa: ANN401
        """Do as the optimizer's `step`."""
        if self._nesterov is None and self._options.on_gradient is None:
            return self._inner.step(closure) if closure is not None else self._inner.step()
        evaluates = closure is not None and self._evaluations.need(closure)
        self._check_momentum()
        if evaluates and closure is not None:
            return self._inner.step(evaluation(closure, self._show_gradients, lambda loss: loss))
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.synchronize()
        self._show_gradients()
        self._inner.step()
        self._has_momentum = False
        if self._nesterov is not None:
            self._nesterov.keep()
        return loss

    def synchronize(self) -> None:
        """Let gradients have their momentum, which a script may clip then."""
        if self._nesterov is None or self._has_momentum:
            return
        self._has_momentum = True
        with torch.no_grad():
            for param in self._with_gradient():
                if param.grad.layout is not torch.strided:
                    param.grad = param.grad.to_dense()
                param.grad.copy_(self._nesterov.applied(id(param), param.grad))

    def zero_grad(self, set_to_none: bool) -> None:
        """Do as the optimizer's `zero_grad`."""
        self.leave_unused()
        self._inner.zero_grad(set_to_none)

    def leave_unused(self) -> None:
        """Take gradients out of their momenta that no step has used."""
        if self._has_momentum and self._nesterov is not None:
            self._has_momentum = False
            self._nesterov.take_back()

    def _show_gradients(self) -> None:
        if self._options.on_gradient is not None:
            for param in self._with_gradient():
                self._options.on_gradient(param)

    def _with_gradient(self) -> Iterator[torch.nn.Parameter]:
        for group in self._inner.param_groups:
            yield from (param for param in group["params"] if param.grad is not None)


def _hook(alone: Alone) -> Callable[[torch.nn.Parameter], None]:
    """Return the hook of a parameter, by which a script goes on without a step."""
    alive = weakref.ref(alone)

    def arrived(_: torch.nn.Parameter) -> None:
        owner = alive()
        if owner is not None:
            owner.leave_unused()

    return arrived


def _remove(handles: List[Any]) -> None:
    for handle in handles:
        handle.remove()
