"""An asynchronous key with row_sparse gradients: values and row flags travel together."""

from typing import Tuple

import mxnet as mx
import numpy as np

from bytescheduler._native import MXNetCopier
from bytescheduler.mxnet._arrays import sparse as _sparse
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._types import Array, Key


class RowsTensor(Tensor):
    """See `Tensor`.

    `send` is flat: the dense sum, then a number for each row that says how many devices sent it.
    A push carries both, so that a server has them at the same time (`_server_updates`). `recv`
    has the same form; its flags mean nothing.
    """

    __slots__ = ()

    carries_rows = True

    def __init__(self, key: Key, engine_key: int, like: Array, copier: MXNetCopier) -> None:
        super().__init__(key, engine_key, like, copier)
        self.sparse = False  # needs no second tensor for its rows

    @classmethod
    def of(cls, dense: Tensor, engine_key: int) -> "RowsTensor":
        """Return another tensor for the key of a dense tensor; its value is to be taken."""
        like = mx.nd.empty(dense.shape, dtype=dense.recv.dtype)
        tensor = cls(dense.key, engine_key, like, dense.copier)
        tensor.position = dense.position
        return tensor

    def fits(self, array: Array) -> bool:
        """Return False: nothing that is pushed or pulled has this form."""
        return False

    @property
    def is_usual(self) -> bool:
        """False: values and flags never travel as the user's arrays are."""
        return False

    def _count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def _wire_shape(self) -> Tuple[int, ...]:
        return (self._count() + self.shape[0],)

    def take(self, value: Array) -> None:
        """Receive `value`, as if it had been sent."""
        none = mx.nd.zeros((self.shape[0],), dtype=self._wire_dtype)
        self._joined(_sparse.dense(value), none).copyto(self.recv)

    def gather(self, arrays: "list[Array]") -> None:
        """Put the sum of `arrays`, an array for each device, and their rows into `send`."""
        flags = self._sum([_sparse.row_flags(array) for array in arrays])
        values = self._sum(arrays)
        self._joined(values, flags.astype(self._wire_dtype)).copyto(self.send)

    @staticmethod
    def _joined(values: Array, flags: Array) -> Array:
        flat = values.as_in_context(mx.cpu()).reshape((-1,))
        return mx.nd.concat(flat, flags.as_in_context(mx.cpu()), dim=0)

    def _values(self) -> Array:
        values = mx.nd.slice_axis(self.recv, axis=0, begin=0, end=self._count())
        return values.reshape(self.shape)

    def _value(self, sparse: bool) -> Array:
        values = self._values()
        return _sparse.with_all_rows(values) if sparse else values

    def copy_rows_out(self, wanted: "list[int]", out: Array) -> None:
        """Copy the `wanted` rows of the received weights into a row_sparse array."""
        _sparse.retain(_sparse.with_all_rows(self._values()), wanted).copyto(out)
