"""A model of Keras whose steps begin with the updates of the step before."""

import inspect
from typing import Any, Callable, Collection, Dict, List, Optional, Set

from bytescheduler._process.say import say
from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._crossing.callbacks import (
    FlushEachBatch,
    FlushEachEpoch,
    first_with,
    listed,
    looks_at_batches,
)
from bytescheduler.tensorflow._crossing.separable import why_joint
from bytescheduler.tensorflow._crossing.updates import WaitingUpdates
from bytescheduler.tensorflow._gradients.optimizer import steps_of
from bytescheduler.tensorflow._job.job import TensorFlowJoined, current

__all__ = ["cross_barrier"]

_MARK = "_bytescheduler_crossing"
# Methods of a model that use weights, or replace them.
_USERS = (
    "evaluate",
    "export",
    "get_weights",
    "load_weights",
    "predict",
    "predict_on_batch",
    "save",
    "save_weights",
    "set_weights",
    "test_on_batch",
)


class _Crossing:
    """The methods that a model has for the sake of updates that wait."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model
        self._unaware: List[Any] = []  # callbacks that use no weights between batches
        self._updates: Optional[WaitingUpdates] = None
        self._said: Set[str] = set()
        self._inner: Dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Give the model its methods; a second call does nothing."""
        if self._inner:
            return
        methods = {
            "train_step": self._train_step,
            "train_on_batch": self._train_on_batch,
            "fit": self._fit,
            "compile": self._compile,
        }
        for name in (*methods, *_USERS):
            if hasattr(self._model, name):
                self._inner[name] = getattr(self._model, name)
                method = methods.get(name) or self._flushing(name)
                object.__setattr__(self._model, name, method)
        object.__setattr__(self._model, _MARK, self)

    def leave_out(self, needs_no_weights: Collection[Any]) -> None:
        """Let batches not wait for more callbacks."""
        self._unaware.extend(needs_no_weights)

    def cross(self, job: TensorFlowJoined, optimizer: Any) -> None:  # noqa: ANN401
        """Let the steps of an optimizer cross the barrier, or say why not."""
        steps = steps_of(optimizer)
        assert steps is not None
        assert job.session is not None
        if steps.updates is not None:
            raise UsageError("cross_barrier: this model crosses the barrier already", 5)
        reason = "run_eagerly=True lets each operation wait" if self._model.run_eagerly else None
        reason = reason or why_joint(optimizer)
        if reason is not None:
            self._say(
                f"{type(optimizer).__name__} cannot cross the barrier: {reason}; each step waits "
                "for all sums"
            )
            return
        optimizer.build(self._model.trainable_variables)
        self._updates = steps.updates = WaitingUpdates(
            optimizer, steps.means, lambda: self._model.trainable_variables, job.session
        )
        self.install()
        self._model.train_function = None  # one of before has no updates at its head

    def _say(self, text: str) -> None:
        """Print a line, once, on worker 0."""
        if current().get().rank == 0 and text not in self._said:
            say(f"bytescheduler: {text}")
        self._said.add(text)

    def _flush(self) -> None:
        if self._updates is not None:
            self._updates.flush_now()

    def _flushing(self, name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._flush()
            return self._inner[name](*args, **kwargs)

        return method

    # AutoGraph converts this one, as it has to convert a `train_step` of the user's.
    def _train_step(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if self._updates is not None:
            self._updates.head()
        return self._inner["train_step"](*args, **kwargs)

    def _train_on_batch(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = self._inner["train_on_batch"](*args, **kwargs)
        self._flush()
        return result

    def _compile(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        self._flush()
        if self._updates is not None:  # the next optimizer may be another one
            steps = steps_of(self._updates.optimizer)
            assert steps is not None
            self._updates = steps.updates = None
        return self._inner["compile"](*args, **kwargs)

    def _fit(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        inner = self._inner["fit"]
        updates = self._updates
        if updates is None:
            return inner(*args, **kwargs)
        bound = inspect.signature(inner).bind(*args, **kwargs)
        arguments = _named_arguments(bound)
        callbacks = arguments.get("callbacks")
        arguments["callbacks"] = first_with(callbacks, self._flusher(callbacks))
        unflushed = current().get().unflushed
        unflushed.add(updates)
        result = inner(*bound.args, **bound.kwargs)
        unflushed.discard(updates)  # an error above leaves updates for `shutdown`
        return result

    def _flusher(self, callbacks: Any) -> FlushEachEpoch:  # noqa: ANN401
        watching = [
            callback
            for callback in listed(callbacks)
            if looks_at_batches(callback)
            and not any(callback is unaware for unaware in self._unaware)
        ]
        for callback in watching:
            self._say(
                f"{type(callback).__name__} is called between batches, so each batch waits for "
                "all sums; if it uses no weights, pass cross_barrier(model, "
                "needs_no_weights=[callback])"
            )
        return (FlushEachBatch if watching else FlushEachEpoch)(self._flush)


def _named_arguments(bound: inspect.BoundArguments) -> Dict[str, Any]:
    """Return the arguments among which a `fit`, that of a user's class too, has its callbacks."""
    parameters = bound.signature.parameters
    if "callbacks" in parameters:
        return bound.arguments
    kinds = {parameter.kind: name for name, parameter in parameters.items()}
    others = kinds.get(inspect.Parameter.VAR_KEYWORD)
    if others is None:
        raise UsageError(
            "cross_barrier: the fit of this model takes no callbacks; leave cross_barrier out", 5
        )
    named: Dict[str, Any] = bound.arguments.setdefault(others, {})
    return named


def cross_barrier(model: Any, needs_no_weights: Collection[Any] = ()) -> None:  # noqa: ANN401
    """Let `fit` begin a step before the means of the step before are there.

    A step makes the updates of the step before at its head.  A layer waits for the means of its own
    weights, and not for those of layers behind it.  All updates are made before `evaluate`,
    `predict`, a save, the end of an epoch, and a callback that is called between batches.

    Optimizers that cannot step each variable by itself keep the barrier, and a line says so.

    Parameters
    ----------
    model : keras.Model
        Built, and compiled with a `DistributedOptimizer`; call this again after `compile`.
    needs_no_weights : collection of Callback
        Callbacks that use no weights between batches, such as those that print a loss.

    Raises
    ------
    UsageError
        The model is not built or not compiled so, or crosses the barrier already.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or steps_of(optimizer) is None:
        raise UsageError(
            "cross_barrier: compile the model before, with bytescheduler's "
            "DistributedOptimizer(optimizer)",
            5,
        )
    if not model.built:
        raise UsageError(
            "cross_barrier: the model has no weights yet; call model.build(input_shape) before", 5
        )
    job = current().get()
    if job.variables is None:
        return  # alone nothing has to be waited for
    crossing = getattr(model, _MARK, None)
    if crossing is None:
        crossing = _Crossing(model)
    crossing.cross(job, optimizer)
    crossing.leave_out(needs_no_weights)
