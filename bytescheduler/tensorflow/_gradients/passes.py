"""Gradients of several backward passes, added up on this worker before they travel."""

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

__all__ = ["Passes"]

# Gets gradients, and makes an update of them.
Update = Callable[[List[Any]], Any]


class Passes:
    """Adds up gradients of backward passes, until there are enough for an update.

    Parameters
    ----------
    count : int
        The number of passes that make an update, the same on all workers.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._passed: Optional[tf.Variable] = None
        self._sums: List[Optional[tf.Variable]] = []

    def add(self, gradients: Sequence[Any], update: Update) -> None:
        """Add gradients to the sums; after `count` calls `update` gets these, and they begin anew.

        Gradients are dense, or None in every call.
        """
        if self._passed is None:
            with tf.init_scope():  # the variables outlive the graph that is made now
                self._passed = tf.Variable(0, trainable=False, dtype=tf.int64)
                self._sums = [
                    None
                    if gradient is None
                    else tf.Variable(tf.zeros(gradient.shape, gradient.dtype), trainable=False)
                    for gradient in gradients
                ]
        for total, gradient in zip(self._sums, gradients):
            if total is not None:
                total.assign_add(gradient)
        passed = self._passed.assign_add(1)
        tf.cond(passed >= self._count, lambda: self._finish(update), lambda: tf.constant(True))

    def _finish(self, update: Update) -> tf.Tensor:
        assert self._passed is not None
        update([None if total is None else total.read_value() for total in self._sums])
        for total in self._sums:
            if total is not None:
                total.assign(tf.zeros_like(total))
        self._passed.assign(0)
        return tf.constant(True)
