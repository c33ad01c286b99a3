"""TensorFlow's dtypes as the engine numbers them, and checks of values."""

from typing import Any

import tensorflow as tf

from bytescheduler.errors import UsageError

__all__ = ["code_of", "fixed_tensor_of", "summable_tensor_of"]

_CODES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
    "bfloat16": 12,
}


def code_of(dtype: tf.DType) -> int:
    """Return the engine's number of a dtype that servers can sum."""
    return _CODES[dtype.name]


def _dense(value: Any, label: str) -> tf.Tensor:  # noqa: ANN401
    if isinstance(value, tf.IndexedSlices):
        raise UsageError(
            f"{label}: it is sparse (IndexedSlices); pass tf.convert_to_tensor(value), or "
            "sparse_as_dense=True to the optimizer, tape or CrossDeviceOps",
            5,
        )
    if isinstance(value, tf.SparseTensor):
        raise UsageError(f"{label}: it is sparse; pass tf.sparse.to_dense(value)", 5)
    if isinstance(value, tf.RaggedTensor):
        raise UsageError(f"{label}: it is ragged; pass value.to_tensor()", 5)
    return tf.convert_to_tensor(value)


def fixed_tensor_of(value: Any, label: str) -> tf.Tensor:  # noqa: ANN401
    """Return a dense tensor whose elements have a fixed size; `label` names it in errors.

    Raises
    ------
    UsageError
        It is sparse or ragged, or has texts, and the message has the cure.
    """
    tensor = _dense(value, label)
    if tensor.dtype in (tf.string, tf.resource, tf.variant):
        raise UsageError(
            f"{label}: {tensor.dtype.name} does not travel in a tensor; use broadcast_object or "
            "allgather_object",
            5,
        )
    return tensor


def summable_tensor_of(value: Any, label: str, *, average: bool) -> tf.Tensor:  # noqa: ANN401
    """Do as `fixed_tensor_of` for a tensor that servers sum, or average.

    Raises
    ------
    UsageError
        Servers cannot sum its dtype, or a mean of integers is wanted.
    """
    tensor = fixed_tensor_of(value, label)
    if tensor.dtype.name not in _CODES:
        raise UsageError(
            f"{label}: servers cannot sum {tensor.dtype.name}; cast it to one of "
            f"{', '.join(_CODES)}",
            5,
        )
    if average and not tensor.dtype.is_floating:
        raise UsageError(
            f"{label}: the mean of {tensor.dtype.name} is no whole number; take the sum, by "
            "average=False or op=Sum, or cast it to a float",
            5,
        )
    return tensor
