"""Means and sums of the gradients of variables over all workers."""

from typing import Any, List, NamedTuple, Sequence, Tuple

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine.dtypes import code_of, summable_tensor_of
from bytescheduler.tensorflow._job.job import TensorFlowJoined, current
from bytescheduler.tensorflow._sums.call import Target, await_sum, push_pull, start
from bytescheduler.tensorflow._sums.compression import Compressor
from bytescheduler.tensorflow._sums.variables import Gradient, Variables, name_on_wire

__all__ = ["Means", "check_unmarked"]

_MARK = "_bytescheduler_is_mean"
_FIRST_GRADIENTS = "bytescheduler: first gradients of variables"


def check_unmarked(gradients: Sequence[Any]) -> None:
    """Raise UsageError if `Means.marked` returned one of the gradients."""
    if any(hasattr(gradient, _MARK) for gradient in gradients):
        raise UsageError(
            "DistributedOptimizer: a DistributedGradientTape has summed these gradients already; "
            "wrap either the tape or the optimizer",
            5,
        )


class _Sent(NamedTuple):
    """A gradient as it travels, and its place in the list of gradients."""

    place: int
    tensor: tf.Tensor
    context: Any  # for `Compressor.decompress`
    target: Target


class Means:
    """Sums gradients over all workers, or averages them.

    Parameters
    ----------
    average : bool
        Whether to divide sums by the number of workers.
    sparse_as_dense : bool
        Whether to make gradients dense that are `tf.IndexedSlices`, instead of an error.
    compressor : Compressor
        The dtype in which they travel.
    """

    def __init__(self, *, average: bool, sparse_as_dense: bool, compressor: Compressor) -> None:
        self._average = average
        self._sparse_as_dense = sparse_as_dense
        self._compressor = compressor

    def of(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """Return the mean of each gradient over all workers.

        A gradient that is None on some workers counts as zeros there; on all, it stays None.
        Eagerly, and when a graph is made, this blocks until all workers call it.

        Raises
        ------
        UsageError
            A gradient is sparse, or servers cannot sum it.
        ConfigError
            Workers have other variables, shapes or dtypes.
        """
        job = current().get()
        if job.variables is None or job.tensors is None:
            return list(gradients)
        _check_one_replica()
        dense = self.dense(gradients, variables)
        if any(not _is_variable(variable) for variable in variables):
            return self._of_tensors(dense, job)
        return self._of_variables(dense, variables, job.variables, job)

    def begin(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Begin to average gradients of variables, in a graph; `awaited` has the means later.

        Otherwise it is as `of`.
        """
        job = current().get()
        assert job.variables is not None
        _check_one_replica()
        dense = self.dense(gradients, variables)
        for sent in self._sent(dense, variables, job.variables, job):
            start(sent.tensor, sent.target, self._divisor(job))

    def awaited(self, variable: Any) -> Tuple[tf.Tensor, tf.Tensor]:  # noqa: ANN401
        """Return the mean that `begin` began and whether there is one; without, it is any numbers.

        It ends when the mean is there.
        """
        names = current().get().variables
        assert names is not None
        plain = tf.as_dtype(variable.dtype)
        dtype = self._compressor.dtype_of(plain)
        target = self._target(variable, dtype, 0, names)
        total, is_there = await_sum(target, dtype, tf.TensorShape(variable.shape))
        return self._compressor.decompress(total, None if dtype == plain else plain), is_there

    def marked(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """Do as `of`, with results that `check_unmarked` refuses."""
        results = self.of(gradients, variables)
        if current().get().variables is not None:
            for result in results:
                if result is not None:
                    setattr(result, _MARK, True)
        return results

    def dense(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """Return gradients as dense tensors that servers can sum; None stays None.

        Raises
        ------
        UsageError
            A gradient is sparse, or servers cannot sum it.
        """
        names = current().get().variables
        if names is None:  # nothing travels
            return [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        return [
            self._dense(gradient, variable, names)
            for gradient, variable in zip(gradients, variables)
        ]

    def _dense(self, gradient: Any, variable: Any, names: Variables) -> Any:  # noqa: ANN401
        if gradient is None:
            return None
        name = names.name_of(variable) if _is_variable(variable) else "a tensor"
        if self._sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            gradient = tf.convert_to_tensor(gradient)
        return summable_tensor_of(gradient, f"gradient of {name!r}", average=self._average)

    def _of_tensors(self, gradients: Sequence[Any], job: TensorFlowJoined) -> List[Any]:
        """Return means for sources of a tape that are no variables, in the order of the program."""
        assert job.tensors is not None
        results = []
        for gradient in gradients:
            if gradient is None:
                raise UsageError(
                    "gradient of a tensor that is no variable: it is None; pass "
                    "unconnected_gradients=tf.UnconnectedGradients.ZERO to gradient()",
                    5,
                )
            sent, context = self._compressor.compress(gradient)
            total = job.tensors.push_pull(sent, None, average=self._average)
            results.append(self._compressor.decompress(total, context))
        return results

    def _of_variables(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        names: Variables,
        job: TensorFlowJoined,
    ) -> List[Any]:
        all_sent = self._sent(gradients, variables, names, job)
        totals = push_pull(
            [sent.tensor for sent in all_sent],
            [sent.target for sent in all_sent],
            self._divisor(job),
        )
        results: List[Any] = [None] * len(gradients)
        for total, sent in zip(totals, all_sent):
            results[sent.place] = self._compressor.decompress(total, sent.context)
        return results

    def _divisor(self, job: TensorFlowJoined) -> int:
        return job.size if self._average else 0

    def _sent(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        names: Variables,
        job: TensorFlowJoined,
    ) -> List[_Sent]:
        """Agree with the other workers; return what travels."""
        used = names.agree(
            [self._facts(gradient, variable) for gradient, variable in zip(gradients, variables)],
            lambda is_new: _is_anywhere(is_new, job),
        )
        all_sent = []
        for place, variable in enumerate(variables):
            if used[place]:
                gradient = gradients[place]
                tensor, context = self._compressor.compress(
                    _zeros_of(variable) if gradient is None else gradient
                )
                target = self._target(variable, tensor.dtype, place, names)
                all_sent.append(_Sent(place, tensor, context, target))
        return all_sent

    def _facts(self, gradient: Any, variable: Any) -> Gradient:  # noqa: ANN401
        plain = tf.as_dtype(variable.dtype) if gradient is None else gradient.dtype
        dtype = self._compressor.dtype_of(plain)
        shape = tf.TensorShape(variable.shape)
        size = int(shape.num_elements()) * int(dtype.size)
        return Gradient(
            variable, dtype.name, code_of(dtype), tuple(shape), size, gradient is not None
        )

    @staticmethod
    def _target(variable: Any, dtype: tf.DType, place: int, names: Variables) -> Target:  # noqa: ANN401
        name = names.name_of(variable)
        # Variables come in the order of the forward pass, which needs the first one first.
        key = names.key_of(name_on_wire(name, dtype.name))
        return Target(key, name, variable, -place)


def _is_anywhere(value: bool, job: TensorFlowJoined) -> bool:
    """Return whether a flag is set on any worker; when a graph is made, only this worker's."""
    assert job.tensors is not None
    if not tf.executing_eagerly():
        return value
    flag = tf.constant(int(value))
    return int(job.tensors.push_pull(flag, _FIRST_GRADIENTS, average=False)) > 0


def _check_one_replica() -> None:
    """Raise UsageError within one of several replicas, all of which would send their own."""
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1 and not tf.distribute.in_cross_replica_context():
        raise UsageError(
            f"under {type(strategy).__name__} with {strategy.num_replicas_in_sync} devices neither "
            "an optimizer nor a tape is wrapped; pass cross_device_ops="
            "bytescheduler.tensorflow.CrossDeviceOps() to tf.distribute.MirroredStrategy",
            5,
        )


def _zeros_of(variable: Any) -> tf.Tensor:  # noqa: ANN401
    return tf.zeros(variable.shape, variable.dtype)


def _is_variable(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, tf.Variable):
        return True
    return isinstance(getattr(value, "value", None), tf.Variable)
