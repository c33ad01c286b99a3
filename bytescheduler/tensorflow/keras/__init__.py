"""Keras: an optimizer that averages gradients, callbacks, and models that load again.

Change three lines of a training script::

    import bytescheduler.tensorflow.keras as bps

    bps.init()
    model.compile(bps.DistributedOptimizer(optimizer), loss)
    model.fit(data, callbacks=[bps.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from typing import Any, Mapping, Optional

import tensorflow as tf

from bytescheduler.tensorflow import (
    Average,
    Compression,
    DistributedOptimizer,
    Sum,
    broadcast,
    init,
    initialized,
    local_rank,
    local_size,
    push_pull,
    rank,
    shutdown,
    size,
)
from bytescheduler.tensorflow._crossing.model import cross_barrier
from bytescheduler.tensorflow.keras import callbacks

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Sum",
    "broadcast",
    "callbacks",
    "cross_barrier",
    "init",
    "initialized",
    "load_model",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "shutdown",
    "size",
]


def load_model(
    filepath: Any,  # noqa: ANN401
    *args: Any,  # noqa: ANN401
    optimizer_options: Optional[Mapping[str, Any]] = None,
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return a saved model whose optimizer steps with means over all workers again.

    Parameters
    ----------
    filepath, args, kwargs
        As of `keras.models.load_model`.
    optimizer_options : mapping, optional
        The options of `DistributedOptimizer`, which a saved model does not have.
    """
    model = tf.keras.models.load_model(filepath, *args, **kwargs)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, **(optimizer_options or {}))
    return model
