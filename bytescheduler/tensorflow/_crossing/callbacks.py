"""Callbacks of `fit` that make updates before others look at weights."""

from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

__all__ = ["FlushEachBatch", "FlushEachEpoch", "first_with", "listed", "looks_at_batches"]

_Logs = Optional[Dict[str, Any]]
_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
# Callbacks of these packages use no weights within an epoch, or by methods of the model alone.
_HARMLESS = ("bytescheduler", "keras", "tensorflow")
_NOT_HARMLESS = ("BackupAndRestore", "LambdaCallback")


def looks_at_batches(callback: Any) -> bool:  # noqa: ANN401
    """Return whether a callback may use weights between two batches."""
    kind = type(callback)
    if kind.__module__.split(".")[0] in _HARMLESS and kind.__name__ not in _NOT_HARMLESS:
        return False
    base = tf.keras.callbacks.Callback
    methods = [(getattr(callback, name, None), getattr(base, name, None)) for name in _HOOKS]
    return any(getattr(method, "__func__", method) is not plain for method, plain in methods)


class FlushEachEpoch(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Makes updates at the end of an epoch, and of the training.

    Parameters
    ----------
    flush : callable
        Makes them.
    """

    _supports_tf_logs = True  # Keras need not copy them for this

    def __init__(self, flush: Callable[[], None]) -> None:
        super().__init__()
        self._flush = flush

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        self._flush()

    def on_train_end(self, logs: _Logs = None) -> None:
        """See `Callback`."""
        self._flush()


class FlushEachBatch(FlushEachEpoch):
    """Makes updates at the end of each batch too."""

    def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        self._flush()


def first_with(callbacks: Any, ours: FlushEachEpoch) -> Any:  # noqa: ANN401
    """Return the callbacks of a `fit` with `ours` in front."""
    if isinstance(callbacks, tf.keras.callbacks.CallbackList):
        callbacks.callbacks.insert(0, ours)
        return callbacks
    return [ours, *listed(callbacks)]


def listed(callbacks: Any) -> Sequence[Any]:  # noqa: ANN401
    """Return the callbacks of a `fit` as a list."""
    if isinstance(callbacks, tf.keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    flat: List[Any] = tf.nest.flatten(callbacks) if callbacks else []
    return flat
