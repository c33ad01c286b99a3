"""Sums of gradients over the devices of a process, and then over all workers."""

from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._api.push_pull import Average, averages
from bytescheduler.tensorflow._engine.dtypes import summable_tensor_of
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._gradients.means import Means
from bytescheduler.tensorflow._job.job import current
from bytescheduler.tensorflow._sums.compression import Compression, Compressor, checked

__all__ = ["CrossDeviceOps"]

_MEAN = tf.distribute.ReduceOp.MEAN


class CrossDeviceOps(tf.distribute.CrossDeviceOps):  # type: ignore[misc]
    """For a `MirroredStrategy` in each worker: gradients are those of all devices of all workers.

    TensorFlow sums over the devices of a worker, and this takes the mean over workers.  It does so
    for gradients and for `all_reduce` in a replica.  `strategy.reduce`, metrics and tensors of
    int32 stay within the worker.

    Parameters
    ----------
    op : str
        `Average` or `Sum` over workers.
    sparse_as_dense : bool
        Whether to make sparse gradients dense, instead of an error.
    compression : Compressor
        The dtype in which floats travel between workers.
    local : tf.distribute.CrossDeviceOps, optional
        Sums over the devices of a worker; `tf.distribute.ReductionToOneDevice()` by default.
    """

    def __init__(
        self,
        op: object = Average,
        sparse_as_dense: bool = False,
        compression: Compressor = Compression.none,
        local: Optional[tf.distribute.CrossDeviceOps] = None,
    ) -> None:
        super().__init__()
        if local is None:
            local = tf.distribute.ReductionToOneDevice()
        if not isinstance(local, tf.distribute.CrossDeviceOps):
            raise UsageError(
                f"CrossDeviceOps: local={local!r}: want an object such as "
                "tf.distribute.ReductionToOneDevice()",
                5,
            )
        self._average = averages(op)
        self._sparse_as_dense = sparse_as_dense
        self._compressor = checked(compression)
        self._local = local

    def reduce(
        self,
        reduce_op: Any,  # noqa: ANN401
        per_replica_value: Any,  # noqa: ANN401
        destinations: Any,  # noqa: ANN401
        options: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """See `tf.distribute.CrossDeviceOps`; it stays within the worker."""
        return self._local.reduce(reduce_op, per_replica_value, destinations, options)

    @unconverted
    def batch_reduce(
        self,
        reduce_op: Any,  # noqa: ANN401
        value_destination_pairs: Sequence[Tuple[Any, Any]],
        options: Any = None,  # noqa: ANN401
    ) -> List[Any]:
        """See `tf.distribute.CrossDeviceOps`; over the devices of all workers.

        Raises
        ------
        UsageError
            A gradient is sparse, or servers cannot sum it.
        """
        pairs = list(value_destination_pairs)
        reduced = list(self._local.batch_reduce(reduce_op, pairs, options))
        if current().get().tensors is None or not pairs:
            return reduced
        ours = [_first_copy(value) for value in reduced]
        average = self._average or reduce_op == _MEAN
        totals = self._over_workers(ours, [destination for _, destination in pairs], average)
        return [
            self._local.broadcast(total, destination)
            for total, (_, destination) in zip(totals, pairs)
        ]

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:  # noqa: ANN401
        """See `tf.distribute.CrossDeviceOps`; it stays within the worker."""
        return self._local.broadcast(tensor, destinations)

    def _over_workers(
        self, tensors: Sequence[Any], destinations: Sequence[Any], average: bool
    ) -> List[Any]:
        means = Means(
            average=average, sparse_as_dense=self._sparse_as_dense, compressor=self._compressor
        )
        if all(isinstance(destination, tf.Variable) for destination in destinations):
            return means.of(tensors, destinations)
        all_tensors = current().get().tensors
        assert all_tensors is not None
        label = "all_reduce of a tensor"
        if self._sparse_as_dense:
            tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        sent = [
            self._compressor.compress(summable_tensor_of(tensor, label, average=average))
            for tensor in tensors
        ]
        totals = all_tensors.push_pull_apart([tensor for tensor, _ in sent], average=average)
        return [
            self._compressor.decompress(total, context) for total, (_, context) in zip(totals, sent)
        ]


def _first_copy(value: Any) -> Any:  # noqa: ANN401
    """Return the tensor of the first device; a value of one device is a tensor."""
    return tf.distribute.get_strategy().experimental_local_results(value)[0]
