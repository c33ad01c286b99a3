"""Sums and means of single tensors over all workers."""

from typing import Any, Callable, Optional, Tuple

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine.dtypes import summable_tensor_of
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._job.job import current
from bytescheduler.tensorflow._sums.compression import Compression, Compressor, checked

__all__ = ["Average", "Sum", "allreduce", "averages", "push_pull"]

Average = "average"
Sum = "sum"


def averages(op: object) -> bool:
    """Return whether a mean is wanted, rather than a sum.

    Raises
    ------
    UsageError
        `op` is neither.
    """
    if op not in (Average, Sum):
        raise UsageError(f"op={op!r}: want Average or Sum of bytescheduler.tensorflow", 5)
    return op == Average


def _sum(
    tensor: tf.Tensor, name: Optional[str], *, average: bool, compressor: Compressor
) -> tf.Tensor:
    tensors = current().get().tensors
    if tensors is None:
        return tf.identity(tensor)

    def summed(value: tf.Tensor) -> Tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        sent, context = compressor.compress(value)
        label = tensors.name_of(sent, name)
        total = tensors.push_pull(sent, label, average=average)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            gradient_name = None if label is None else f"{label} (gradient)"
            return _sum(upstream, gradient_name, average=average, compressor=compressor)

        return compressor.decompress(total, context), gradient

    return tf.custom_gradient(summed)(tensor)


@unconverted
def push_pull(
    tensor: Any,  # noqa: ANN401
    average: bool = True,
    name: Optional[str] = None,
    compression: Compressor = Compression.none,
) -> tf.Tensor:
    """Return the mean, or the sum, of every worker's `tensor`.

    Eagerly it blocks.  In a graph function it is an operation, and such operations run in the order
    of the program.  The result has a gradient: the push-pull of its gradient.

    Parameters
    ----------
    tensor : tensor, variable, array or number
        The same dtype and shape on every worker.
    average : bool
        Whether to divide the sum by the number of workers.
    name : str, optional
        Without names the calls, and in a graph function their places, are the same on all workers.
    compression : Compressor
        The dtype in which floats travel.

    Raises
    ------
    UsageError
        It is no dense tensor that servers can sum, or `average` is no bool.
    """
    if not isinstance(average, bool):
        raise UsageError(
            f"push_pull: average={average!r}: want True or False; allreduce(tensor, op) takes "
            "Average and Sum, and name= a name",
            5,
        )
    label = "push_pull of a tensor without a name" if name is None else f"push_pull of {name!r}"
    value = summable_tensor_of(tensor, label, average=average)
    return _sum(value, name, average=average, compressor=checked(compression))


@unconverted
def allreduce(
    tensor: Any,  # noqa: ANN401
    op: object = Average,
    name: Optional[str] = None,
    compression: Compressor = Compression.none,
) -> tf.Tensor:
    """Do as `push_pull`, by Horovod's name for it."""
    return push_pull(tensor, averages(op), name, compression)
