"""An optimizer of Keras that steps with means over all workers."""

import sys
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._api.push_pull import Average, averages
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._gradients.means import Means, check_unmarked
from bytescheduler.tensorflow._gradients.passes import Passes
from bytescheduler.tensorflow._sums.compression import Compression, Compressor, checked

__all__ = ["DistributedOptimizer", "Steps", "Updates", "is_scaler", "steps_of", "unwrapped"]

_MARK = "_bytescheduler_steps"
_PATCHED = ("apply", "apply_gradients")
_MOST_FRAMES = 40  # between a scaler of losses and the optimizer in it
_INNER = (
    "DistributedOptimizer: it is the inner optimizer of a LossScaleOptimizer, which steps on some "
    "workers only; wrap the other way round: DistributedOptimizer(LossScaleOptimizer(optimizer))"
)
# The ways to use a Keras model on another backend.
_BACKENDS = {
    "torch": "kept = bytescheduler.torch.DistributedDataParallel(model) before compile and fit"
}


def is_scaler(value: object) -> bool:
    """Return whether an optimizer scales losses, and steps by another one in it."""
    return any("LossScaleOptimizer" in base.__name__ for base in type(value).__mro__)


def steps_of(optimizer: object) -> "Optional[Steps]":
    """Return the steps of an optimizer that `DistributedOptimizer` has had; None: of another."""
    steps: Optional[Steps] = getattr(optimizer, "__dict__", {}).get(_MARK)
    return steps


def unwrapped(optimizer: object) -> Dict[str, Any]:
    """Return the fields that an optimizer has without `DistributedOptimizer`."""
    ours = (_MARK, *_PATCHED) if steps_of(optimizer) is not None else ()
    return {name: value for name, value in vars(optimizer).items() if name not in ours}


def _check_backend(optimizer: object) -> None:
    """Raise UsageError if Keras 3 runs on another backend than TensorFlow."""
    keras = sys.modules.get("keras")
    backend = getattr(getattr(keras, "config", None), "backend", None)
    if backend is None or not isinstance(optimizer, keras.optimizers.Optimizer):  # type: ignore[union-attr]
        return
    name = backend()
    if name == "tensorflow":
        return
    cure = _BACKENDS.get(name, "set KERAS_BACKEND=tensorflow before the first import of keras")
    raise UsageError(
        f"DistributedOptimizer: Keras runs on {name}, and this module is for TensorFlow; use "
        f"{cure}",
        5,
    )


def _check(optimizer: Any, passes: object) -> None:  # noqa: ANN401
    _check_backend(optimizer)
    if not any(hasattr(optimizer, name) for name in ("apply", "apply_gradients")):
        raise UsageError(
            "DistributedOptimizer: want an optimizer of Keras, got "
            f"{type(optimizer).__name__}; make it by tf.keras.optimizers",
            5,
        )
    if steps_of(optimizer) is not None:
        raise UsageError("DistributedOptimizer: this optimizer is wrapped already; wrap it once", 5)
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise UsageError(f"backward_passes_per_step={passes!r}: want a whole number from 1", 5)


def _is_inside_scaler(optimizer: object) -> bool:
    """Return whether a scaler of losses makes this call of its inner optimizer."""
    frame: Any = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        caller = frame.f_locals.get("self")
        if caller is not optimizer and is_scaler(caller):
            return True
        frame = frame.f_back
    return False


def _needs_scaler(optimizer: object) -> bool:
    """Return whether Keras would put a scaler of losses around an optimizer in `compile`."""
    policy = tf.keras.mixed_precision.global_policy().name
    return policy == "mixed_float16" and not is_scaler(optimizer)


class Updates(Protocol):
    """Steps that are made later, when their means are there."""

    def are_due(self) -> bool:
        """Return whether the step that is made now is to be made later."""

    def begin(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Begin to average gradients, and step with the means later."""


class Steps:
    """The steps of one optimizer.

    Attributes
    ----------
    means : Means
        Averages its gradients.
    updates : Updates, optional
        Take the steps that are made later; None: there are none.
    """

    def __init__(self, optimizer: Any, means: Means, passes: Optional[Passes]) -> None:  # noqa: ANN401
        self._optimizer = optimizer
        self.means = means
        self.updates: Optional[Updates] = None
        self._passes = passes
        self._may_be_inner = not is_scaler(optimizer)

    def check(self) -> None:
        """Raise UsageError if a scaler of losses calls the optimizer."""
        if self._may_be_inner and _is_inside_scaler(self._optimizer):
            raise UsageError(_INNER, 5)

    def make(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[List[Any]], Any],
    ) -> Any:  # noqa: ANN401
        """Let `step` have the means of gradients, now or after further backward passes."""
        check_unmarked(gradients)
        updates = self.updates
        if updates is not None and updates.are_due():
            if self._passes is None:
                updates.begin(gradients, variables)
            else:
                dense = self.means.dense(gradients, variables)
                self._passes.add(dense, variables, lambda sums: updates.begin(sums, variables))
            return self._optimizer.iterations
        if self._passes is None:
            return step(self.means.of(gradients, variables))
        dense = self.means.dense(gradients, variables)
        self._passes.add(dense, variables, lambda sums: step(self.means.of(sums, variables)))
        return self._optimizer.iterations


def DistributedOptimizer(  # noqa: N802 - a name of Horovod and BytePS
    optimizer: Any,  # noqa: ANN401
    op: object = Average,
    backward_passes_per_step: int = 1,
    sparse_as_dense: bool = False,
    compression: Compressor = Compression.none,
    average_aggregated_gradients: bool = False,
    name: Optional[str] = None,
) -> Any:  # noqa: ANN401
    """Let an optimizer of Keras step with means over all workers; return it.

    It keeps its class, so a saved model loads without this package.  Under the policy
    ``mixed_float16`` a `LossScaleOptimizer` around it comes back: sums come before its check for
    infinities, so all workers skip the same steps.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Changed in place.
    op : str
        `Average` or `Sum`.
    backward_passes_per_step : int
        The number of calls whose gradients are added up before they travel.
    sparse_as_dense : bool
        Whether to make sparse gradients dense, instead of an error.
    compression : Compressor
        The dtype in which gradients travel.
    average_aggregated_gradients : bool
        Whether to divide the sums of several calls by their number.
    name : str, optional
        Accepted for scripts of Horovod; the optimizer keeps its own.

    Raises
    ------
    UsageError
        It is wrapped already, is no optimizer of Keras on TensorFlow, or an argument is wrong.
    """
    _check(optimizer, backward_passes_per_step)
    if _needs_scaler(optimizer):
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    means = Means(
        average=averages(op), sparse_as_dense=sparse_as_dense, compressor=checked(compression)
    )
    passes = None
    if backward_passes_per_step > 1:
        passes = Passes(backward_passes_per_step, is_mean=average_aggregated_gradients)
    steps = Steps(optimizer, means, passes)
    patch = _patch_apply if hasattr(optimizer, "apply") else _patch_apply_gradients
    patch(optimizer, steps)
    object.__setattr__(optimizer, _MARK, steps)
    return optimizer


def _patch_apply(optimizer: Any, steps: Steps) -> None:  # noqa: ANN401
    """Patch an optimizer of Keras 3, all of whose steps go through `apply`."""
    inner = optimizer.apply

    def apply(grads: Any, trainable_variables: Any = None) -> Any:  # noqa: ANN401
        """See `keras.optimizers.Optimizer.apply`."""
        steps.check()
        variables = list(trainable_variables or optimizer._trainable_variables)
        if not optimizer.built:
            with tf.init_scope():
                optimizer.build(variables)
        return steps.make(list(grads), variables, lambda means: inner(means, variables))

    object.__setattr__(optimizer, "apply", unconverted(apply))


def _patch_apply_gradients(optimizer: Any, steps: Steps) -> None:  # noqa: ANN401
    """Patch an optimizer of Keras 2, all of whose steps go through `apply_gradients`."""
    inner = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """See `keras.optimizers.Optimizer.apply_gradients`."""
        steps.check()
        pairs = list(grads_and_vars)
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if kwargs.get("skip_gradients_aggregation"):  # the caller has the means already
            return inner(pairs, *args, **kwargs)
        return steps.make(
            gradients, variables, lambda means: inner(list(zip(means, variables)), *args, **kwargs)
        )

    object.__setattr__(optimizer, "apply_gradients", unconverted(apply_gradients))
