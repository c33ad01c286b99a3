"""Rows of row_sparse arrays, next to dense sums: ordinary engine operations that never wait."""

from typing import List

import mxnet as mx
import numpy as np
from mxnet.ndarray.sparse import RowSparseNDArray

from bytescheduler._process.say import counted
from bytescheduler.mxnet._types import Array, Key

_FLOATS = ("float16", "float32", "float64")


def is_sparse(array: Array) -> bool:
    """Return whether `array` is row_sparse."""
    return isinstance(array, RowSparseNDArray)  # asking for its stype costs a call of C


def dense(array: Array) -> Array:
    """Return `array`, or a dense copy of it if it is row_sparse."""
    return mx.nd.cast_storage(array, "default") if is_sparse(array) else array


def row_flags(array: Array) -> Array:
    """Return a float32 vector on the array's device: 1 for each row that it has, else 0.

    A row that is there and holds zeros counts.  Waits for `array` only if it holds integers, which
    are never gradients.
    """
    rows = array.shape[0]
    if not is_sparse(array):
        return mx.nd.ones((rows,), ctx=array.context)
    if np.dtype(array.dtype).name not in _FLOATS:
        flags = np.zeros(rows, np.float32)
        flags[array.indices.asnumpy()] = 1
        return mx.nd.array(flags, ctx=array.context)
    # No operator gives the rows without waiting for them; but this one touches exactly them, and
    # decay by the whole weight leaves 0 there, whatever the gradient (which counts for nothing).
    there = mx.nd.ones(array.shape, ctx=array.context, dtype=array.dtype)
    mx.nd.sgd_update(there, array, out=there, lr=1.0, wd=1.0, rescale_grad=0.0)
    column = there.reshape((rows, -1)).slice_axis(axis=1, begin=0, end=1)
    return (column.reshape((rows,)) != 1).astype("float32")


def with_rows(values: Array, flags: Array) -> Array:
    """Return dense `values` as row_sparse, with every row whose flag is not 0, even if it is 0."""
    there = flags.astype(values.dtype).reshape((-1,) + (1,) * (len(values.shape) - 1))
    there = mx.nd.cast_storage(mx.nd.broadcast_to(there, shape=values.shape), "row_sparse")
    return mx.nd.sparse.elemwise_add(there * 0, mx.nd.cast_storage(values, "row_sparse"))


def with_all_rows(values: Array) -> Array:
    """Return dense `values` as row_sparse with every row, as optimizers want weights to be."""
    return with_rows(values, mx.nd.ones((values.shape[0],)))


def wanted_rows(key: Key, row_ids: Array, rows: int) -> List[int]:
    """Return the distinct elements of `row_ids`, ascending; waits for `row_ids` only.

    Raises
    ------
    MXNetError
        An element is not below `rows`.
    """
    wanted = np.unique(row_ids.asnumpy().astype(np.int64))
    for bad in wanted[(wanted < 0) | (wanted >= rows)]:
        raise mx.base.MXNetError(
            f"key {key!r} has {counted(rows, 'row')}, so row {bad} cannot be pulled"
        )
    return [int(row) for row in wanted]


def retain(values: Array, wanted: List[int]) -> Array:
    """Return the `wanted` rows of `values` as row_sparse; zeros are there too, unless all is 0."""
    if not wanted:
        return mx.nd.sparse.zeros("row_sparse", values.shape, dtype=values.dtype)
    values = values if is_sparse(values) else mx.nd.cast_storage(values, "row_sparse")
    return mx.nd.sparse.retain(values, mx.nd.array(wanted, dtype="int64"))
