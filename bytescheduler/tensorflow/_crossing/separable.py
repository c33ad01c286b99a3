"""The optimizers that can step each variable by itself."""

from typing import Any, List, Optional

import numpy as np
import tensorflow as tf

from bytescheduler.tensorflow._crossing.alone import step_alone
from bytescheduler.tensorflow._gradients.optimizer import is_scaler

__all__ = ["state_of", "why_joint"]

_SHAPES = ((4, 3), (3,), (2, 2))
_STEPS = 3
_RATE = 0.01
_SEED = 7


def state_of(optimizer: Any) -> List[Any]:  # noqa: ANN401
    """Return the variables of an optimizer, its number of steps included."""
    state = optimizer.variables
    return list(state() if callable(state) else state)


def why_joint(optimizer: Any) -> Optional[str]:  # noqa: ANN401
    """Return why an optimizer has to step all variables together, or None.

    Two copies of it take some steps, of all variables together and of each alone, in another order.
    Their variables must be equal after that, bit by bit.  Nothing of `optimizer` changes.
    """
    if is_scaler(optimizer):
        return "it skips a step where any gradient is not finite"
    if not callable(getattr(optimizer, "update_step", None)):
        return "it has no update_step"
    if getattr(optimizer, "global_clipnorm", None):
        return "global_clipnorm needs all gradients"
    if getattr(optimizer, "use_ema", False) and getattr(optimizer, "ema_overwrite_frequency", None):
        return "ema_overwrite_frequency overwrites all weights together"
    if getattr(optimizer, "gradient_accumulation_steps", None):
        return (
            "gradient_accumulation_steps steps all variables together; DistributedOptimizer has "
            "backward_passes_per_step"
        )
    try:
        with tf.init_scope():
            return _compare(optimizer)
    except Exception as error:  # noqa: B902 - any optimizer's own
        return f"a step of a copy failed ({type(error).__name__}: {error})"


def _compare(optimizer: Any) -> Optional[str]:  # noqa: ANN401
    rng = np.random.default_rng(_SEED)
    first = [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]
    whole: List[Any] = []
    apart: List[Any] = []
    for variables in (whole, apart):
        variables.extend(tf.Variable(value) for value in first)
    twins = [type(optimizer).from_config(optimizer.get_config()) for _ in range(2)]
    for twin, variables in zip(twins, (whole, apart)):
        twin.build(variables)
    together, alone = twins
    counters = [tf.Variable(0, dtype=alone.iterations.dtype) for _ in apart]
    rate = tf.Variable(_RATE)
    for _ in range(_STEPS):
        gradients = [tf.constant(rng.normal(size=shape).astype(np.float32)) for shape in _SHAPES]
        _step_together(together, gradients, whole)
        for place in reversed(range(len(apart))):
            step_alone(alone, gradients[place], apart[place], counters[place], rate)
        alone.iterations.assign_add(1)
    ours = [*whole, *state_of(together)]
    theirs = [*apart, *state_of(alone)]
    is_same = len(ours) == len(theirs) and all(
        _bits(left) == _bits(right) for left, right in zip(ours, theirs)
    )
    return None if is_same else "a step of one variable depends on others"


def _step_together(optimizer: Any, gradients: List[Any], variables: List[Any]) -> None:  # noqa: ANN401
    """Take a whole step at the learning rate of the copies."""
    shadow = object.__new__(type(optimizer))
    vars(shadow).update(vars(optimizer), _learning_rate=tf.Variable(_RATE))
    shadow.apply_gradients(zip(gradients, variables))


def _bits(variable: Any) -> bytes:  # noqa: ANN401
    return bytes(tf.convert_to_tensor(variable).numpy().tobytes())
