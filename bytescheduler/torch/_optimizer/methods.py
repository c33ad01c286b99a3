"""Other methods of an optimizer's class, such as `first_step`, which may step too."""

import functools
import inspect
from typing import Any, Callable

from bytescheduler.torch._optimizer.stepper import Stepper

__all__ = ["with_means"]


def with_means(method: Callable[..., Any], stepper: Stepper) -> Callable[..., Any]:
    """Return `method` as a script may call it: all gradients are means first.

    Its argument `closure` leaves means too.
    """
    names = list(inspect.signature(method).parameters)

    def given(name: str, value: Any) -> Any:  # noqa: ANN401
        return stepper.evaluation(value) if name == "closure" and callable(value) else value

    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        rest = names + [""] * len(args)
        passed = [given(name, value) for name, value in zip(rest, args)]
        return stepper.call(
            method, *passed, **{name: given(name, value) for name, value in named.items()}
        )

    return call
