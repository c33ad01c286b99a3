"""Gradients of several backward passes, added up on this worker before they travel."""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow as tf

from bytescheduler.errors import UsageError

__all__ = ["Passes"]

# Gets gradients, and makes an update of them.
Update = Callable[[List[Any]], Any]


class _Sums:
    """The sums for a list of variables, and the passes that they have."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = list(variables)  # they live, so that no other gets the id of one
        self._totals: List[Any] = [None] * len(self._variables)
        self._is_left_out = [False] * len(self._variables)  # by a graph that is made
        with tf.init_scope():  # the count and the sums outlive the graph that is made now
            self._passed = tf.Variable(0, trainable=False, dtype=tf.int64)

    def add(self, gradients: Sequence[Any]) -> tf.Tensor:
        """Add gradients, of which None counts as nothing; return the count of passes."""
        for place, gradient in enumerate(gradients):
            if gradient is not None:
                total = self._total(place, gradient.dtype)
                total.assign_add(tf.cast(gradient, total.dtype))
        return self._passed.assign_add(1)

    def _total(self, place: int, dtype: tf.DType) -> Any:  # noqa: ANN401
        if self._totals[place] is not None:
            return self._totals[place]
        variable = self._variables[place]
        if self._is_left_out[place]:
            raise UsageError(
                f"backward_passes_per_step: {getattr(variable, 'name', 'a variable')!r} has a "
                "gradient now, and had none when an earlier graph was made; give zeros there",
                5,
            )
        with tf.init_scope():
            total = tf.Variable(tf.zeros(variable.shape, dtype), trainable=False)
        self._totals[place] = total
        return total

    def take(self, update: Update, divisor: int) -> None:
        """Let `update` have the sums, divided by `divisor`, and begin anew."""
        if not tf.executing_eagerly():
            self._is_left_out = [total is None for total in self._totals]
        sums = [None if total is None else total.read_value() for total in self._totals]
        if divisor > 1:
            sums = [None if total is None else total / divisor for total in sums]
        update(sums)
        for total in self._totals:
            if total is not None:
                total.assign(tf.zeros_like(total))
        self._passed.assign(0)


class Passes:
    """Adds up gradients of backward passes, until there are enough for an update.

    Each list of variables has sums and a count of its own.

    Parameters
    ----------
    count : int
        The number of passes that make an update, the same on all workers.
    is_mean : bool
        Whether to divide the sums by the number of passes.
    """

    def __init__(self, count: int, *, is_mean: bool) -> None:
        self._count = count
        self._divisor = count if is_mean else 1
        self._sums: Dict[Tuple[int, ...], _Sums] = {}

    def add(self, gradients: Sequence[Any], variables: Sequence[Any], update: Update) -> None:
        """Add gradients to the sums; after `count` calls `update` gets these, and they begin anew.

        Gradients are dense, or None, which counts as nothing.

        Raises
        ------
        UsageError
            A graph function that was made before updates without one of the gradients.
        """
        key = tuple(id(variable) for variable in variables)
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = _Sums(variables)
        passed = sums.add(gradients)

        def finish() -> tf.Tensor:
            sums.take(update, self._divisor)
            return tf.constant(True)

        tf.cond(passed >= self._count, finish, lambda: tf.constant(True))
