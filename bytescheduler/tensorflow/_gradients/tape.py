"""A tape whose gradients are those of all workers."""

from typing import Any

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._api.push_pull import Average, averages
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._gradients.means import Means
from bytescheduler.tensorflow._sums.compression import Compression, Compressor, checked

__all__ = ["DistributedGradientTape"]

_MARK = "_bytescheduler_means"


@unconverted
def DistributedGradientTape(  # noqa: N802 - a name of Horovod and BytePS
    gradtape: tf.GradientTape,
    op: object = Average,
    sparse_as_dense: bool = False,
    compression: Compressor = Compression.none,
) -> tf.GradientTape:
    """Let a tape's `gradient` return means over all workers; return the tape.

    Parameters
    ----------
    gradtape : GradientTape
        Keeps its class; before, within or after its ``with`` block.
    op : str
        `Average` or `Sum`.
    sparse_as_dense : bool
        Whether to make sparse gradients dense, instead of an error.
    compression : Compressor
        The dtype in which gradients travel.

    Raises
    ------
    UsageError
        The tape is wrapped already, or an argument is wrong.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise UsageError(
            f"DistributedGradientTape: want a tf.GradientTape, got {type(gradtape).__name__}", 5
        )
    if hasattr(gradtape, _MARK):
        raise UsageError("DistributedGradientTape: this tape is wrapped already; wrap it once", 5)
    means = Means(
        average=averages(op), sparse_as_dense=sparse_as_dense, compressor=checked(compression)
    )
    inner = gradtape.gradient

    def gradient(target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """See `tf.GradientTape.gradient`: the gradients of all workers, averaged."""
        gradients = inner(target, sources, *args, **kwargs)
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(gradients, expand_composites=False)
        return tf.nest.pack_sequence_as(gradients, means.marked(flat, flat_sources))

    setattr(gradtape, _MARK, means)
    gradtape.gradient = unconverted(gradient)
    return gradtape
