"""The step of one variable by an optimizer of any class, as a step of that variable alone."""

from typing import Any

from bytescheduler.tensorflow._gradients.optimizer import unwrapped

__all__ = ["step_alone"]


def step_alone(optimizer: Any, gradient: Any, variable: Any, counter: Any, rate: Any) -> None:  # noqa: ANN401
    """Let an optimizer step one variable; its number of steps stays.

    The optimizer's own method does so, on an object that shares all state with it.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Built with the variable.
    gradient : tensor
        Dense.
    variable : Variable
        To be stepped.
    counter : Variable
        Of the variable alone; it counts in place of the optimizer's.
    rate : Variable
        The learning rate.
    """
    shadow = object.__new__(type(optimizer))
    vars(shadow).update(unwrapped(optimizer), _iterations=counter, _learning_rate=rate)
    counter.assign(optimizer.iterations)
    if hasattr(shadow, "apply"):  # Keras 3
        shadow.apply([gradient], [variable])
    else:
        shadow.apply_gradients([(gradient, variable)])
