"""Closures of step(): whether an optimizer evaluates the loss itself, and what it gets to do so.

Most optimizers evaluate a closure once, before all else.  Then closure() and step() are the same as
step(closure), and the step can cross.  Any other optimizer gets the closure, with means.
"""

from typing import Any, Callable, List, Optional

import torch

from bytescheduler.torch._crossing.compilers import not_compiling
from bytescheduler.torch._crossing.self_check import copied_groups, first_difference, random_like
from bytescheduler.torch._crossing.shadow import needs_closure, plain_step, twin_of
from bytescheduler.torch._sums.tensor_sums import Call, TensorSums

__all__ = ["Evaluations", "evaluates_loss", "evaluation", "mean_loss"]

_Optimizer = Any  # torch.optim.Optimizer
_Closure = Optional[Callable[[], Any]]
_SEED = 11
_STEPS = 2


def evaluates_loss(inner: _Optimizer) -> bool:
    """Return whether step(closure) of `inner` is more than closure() and then step().

    Two copies of it try both, with copies of its parameters.  Nothing of `inner` changes.
    """
    if needs_closure(inner):
        return True
    params = [param for group in inner.param_groups for param in group["params"]]
    gpus = sorted({param.device.index for param in params if param.is_cuda})
    try:
        with torch.random.fork_rng(gpus), torch.inference_mode(False):
            return _differs(inner)
    except Exception:  # noqa: B902 - any optimizer's own, such as that it needs a closure
        return True


class Evaluations:
    """Tells if an optimizer evaluates the loss itself, which the first closure shows.

    Parameters
    ----------
    inner : Optimizer
        It needs a closure, or is tried once.
    """

    def __init__(self, inner: _Optimizer) -> None:
        self._inner = inner
        self._needs_closure = needs_closure(inner)
        self._are_known = self._needs_closure
        self.are_made = self._needs_closure  # if this is known

    def need(self, closure: _Closure) -> bool:
        """Return whether the optimizer gets `closure`, as it does more than evaluate it once."""
        if closure is None:
            return self._needs_closure
        if not self._are_known:
            with not_compiling():
                self.are_made = evaluates_loss(self._inner)
            self._are_known = True
        return self.are_made


def _differs(inner: _Optimizer) -> bool:
    step = plain_step(type(inner))
    whole, apart = _Trial(inner), _Trial(inner)
    for _ in range(_STEPS):
        random = torch.get_rng_state()
        step(whole.twin, whole.evaluate)
        torch.set_rng_state(random)
        apart.evaluate()
        step(apart.twin)
    is_once = whole.evaluations == apart.evaluations
    return not is_once or first_difference(whole.twin, apart.twin) is not None


class _Trial:
    """A copy of an optimizer, with gradients that depend on weights."""

    def __init__(self, inner: _Optimizer) -> None:
        with torch.no_grad():
            self.twin = twin_of(inner, copied_groups(inner))
        self._generator = torch.Generator("cpu").manual_seed(_SEED)
        self.evaluations = 0
        self.evaluate()
        self.evaluations = 0

    def evaluate(self) -> torch.Tensor:
        """Do as a closure: leave gradients, and return a loss."""
        self.evaluations += 1
        loss = torch.zeros(())
        with torch.no_grad():
            for param in self._params():
                param.grad = random_like(param, self._generator) + param * 0.5
                loss += param.abs().sum().float().cpu()
        return loss

    def _params(self) -> List[torch.nn.Parameter]:
        return [param for group in self.twin.param_groups for param in group["params"]]


def evaluation(
    closure: Callable[[], Any],
    average: Callable[[], None],
    mean_of: Callable[[Any], Any],
) -> Callable[[], Any]:
    """Return `closure` as an optimizer gets it: then gradients, and the loss, are means."""

    def evaluate() -> Any:  # noqa: ANN401
        with torch.enable_grad():
            loss = closure()
        average()
        return mean_of(loss)

    return evaluate


def mean_loss(sums: TensorSums, loss: Any) -> Any:  # noqa: ANN401
    """Return the mean of a loss over all workers, as decisions by it must be alike.  Blocks."""
    if not isinstance(loss, (int, float, torch.Tensor)):
        return loss
    value = torch.as_tensor(loss).detach().to(torch.float64)
    mean = sums.finish(sums.start(value, Call(name="loss of a closure")))
    if isinstance(loss, torch.Tensor):
        return torch.empty_like(loss.detach()).copy_(mean)
    return float(mean)
