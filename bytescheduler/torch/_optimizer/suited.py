"""The part of an optimizer in compression: the rates of its groups, and momenta that clash."""

import math
import weakref
from typing import Any, Callable

from bytescheduler.errors import UsageError
from bytescheduler.torch._sums.choice import Choice

__all__ = ["check_momentum", "check_unscaled", "learning_rates"]

_Optimizer = Any  # torch.optim.Optimizer
# Numbers of a group that are a momentum of its own, where they are not 0.
_MOMENTA = ("momentum", "betas", "beta1")


def learning_rates(inner: _Optimizer) -> Callable[[int], float]:
    """Return a function that returns the learning rate of a group, now; it keeps nothing alive.

    A rate that is absent or not finite is 0, which no residual follows.
    """
    alive = weakref.ref(inner)

    def rate_of(group: int) -> float:
        optimizer = alive()
        rate = 0.0 if optimizer is None else float(optimizer.param_groups[group].get("lr", 0.0))
        return rate if math.isfinite(rate) else 0.0

    return rate_of


def check_unscaled(choice: Choice) -> None:
    """Raise UsageError, for a step of GradScaler, if `choice` would spoil what it skips."""
    coding = choice.params.coding or choice.plain.coding
    if coding is not None and not choice.params.says_overflow:
        raise UsageError(
            f"gradients that are {coding} do not go with GradScaler: codes cannot say that a "
            "gradient overflows, and an infinity would stay in the residual; take another "
            "compressor, such as 'bf16', or train in bfloat16 without a scaler",
            5,
        )
    if choice.mu:
        raise UsageError(
            "momentum 'nesterov' of compression_params does not go with GradScaler: workers would "
            "keep the gradients of steps that it skips, in units of a factor that it changes; "
            "train in bfloat16 without it, or leave the momentum out",
            5,
        )


def check_momentum(inner: _Optimizer, choice: Choice, *, evaluates: bool) -> None:
    """Raise UsageError if the optimizer's groups have a momentum beside that of `choice`.

    Parameters
    ----------
    inner : Optimizer
        Its groups may change at any time.
    choice : Choice
        How gradients travel.
    evaluates : bool
        Whether its step evaluates the loss itself, and so sends gradients several times.
    """
    if not choice.mu:
        return
    kind = type(inner).__name__
    if evaluates:
        raise UsageError(
            f"momentum 'nesterov' of compression_params: a step of {kind} evaluates the loss "
            "itself, so gradients would get the momentum several times; leave it out",
            5,
        )
    for at, group in enumerate(inner.param_groups):
        for key in _MOMENTA:
            if group.get(key):
                raise UsageError(
                    f"momentum 'nesterov' of compression_params: group {at} of {kind} has "
                    f"{key} {group[key]!r} of its own; take an optimizer without, and give the "
                    "number as 'mu', or leave the momentum out",
                    5,
                )
