"""One key's arrays: what it sends, what it receives, what it stores."""

import ctypes
from typing import List, NamedTuple, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from bytescheduler.mxnet._types import Array, Key


class DType(NamedTuple):
    """An element type that the engine can sum."""

    name: str
    size_bytes: int


# By MXNet's code.
_DTYPES = {
    0: DType("float32", 4),
    1: DType("float64", 8),
    2: DType("float16", 2),
    3: DType("uint8", 1),
    4: DType("int32", 4),
    5: DType("int8", 1),
    6: DType("int64", 8),
    12: DType("bfloat16", 2),
}
# Devices that stock MXNet adds in one expression; the same grouping gives the same rounding.
_SUM_AT_ONCE = 4


def _code_of(array: Array) -> int:
    code = ctypes.c_int()
    check_call(_LIB.MXNDArrayGetDType(array.handle, ctypes.byref(code)))
    return code.value


def require_dense(key: Key, array: Array) -> None:
    """Raise MXNetError unless `array` is dense."""
    if array.stype != "default":
        raise mx.base.MXNetError(
            f"key {key!r}: {array.stype} arrays are not supported yet by the native back end; "
            "use dense gradients"
        )


class Tensor:
    """The private arrays of one key, on the CPU, and ordinary engine operations on them.

    `send` and `recv` are the arrays that dependency proxies read and write through raw pointers.
    They are only ever copied into and copied from (and `recv` is what an updater reads), so MXNet
    never keeps them in a layout of its own.

    Parameters
    ----------
    key : int or str
        The user's key.
    engine_key : int
        The engine's key.
    like : NDArray
        Has the shape and dtype of every array of this key.

    Raises
    ------
    MXNetError
        `like` is sparse, or of a dtype that cannot be summed.
    """

    def __init__(self, key: Key, engine_key: int, like: Array) -> None:
        require_dense(key, like)
        self.key = key
        self.engine_key = engine_key
        self.position = 0  # among the tensors of one call
        self.code = _code_of(like)
        if self.code not in _DTYPES:
            known = ", ".join(dtype.name for dtype in _DTYPES.values())
            name = np.dtype(like.dtype).name
            raise mx.base.MXNetError(f"key {key!r}: dtype {name} cannot be summed, only {known}")
        self.dtype = _DTYPES[self.code]
        self.shape: Tuple[int, ...] = like.shape
        self.size_bytes = int(like.size) * self.dtype.size_bytes
        self._like_dtype = like.dtype
        self.recv = self._empty()
        self.send = self._empty()
        self.stored = self.recv

    def _empty(self) -> Array:
        # Allocated at once, so that its address never changes.
        return mx.nd.empty(self.shape, ctx=mx.cpu(), dtype=self._like_dtype)

    def check(self, array: Array) -> None:
        """Raise MXNetError unless `array` fits this key."""
        require_dense(self.key, array)
        code = _code_of(array)
        if array.shape != self.shape or code != self.code:
            got = _DTYPES[code].name if code in _DTYPES else str(array.dtype)
            raise mx.base.MXNetError(
                f"key {self.key!r} was initialised with shape {self.shape} and dtype "
                f"{self.dtype.name}, but this array has shape {array.shape} and dtype {got}"
            )

    def check_out(self, array: Array) -> None:
        """Raise MXNetError unless `array` can receive this key's value; its dtype may differ."""
        require_dense(self.key, array)
        if array.shape != self.shape:
            raise mx.base.MXNetError(
                f"key {self.key!r} was initialised with shape {self.shape}, "
                f"but the array to pull into has shape {array.shape}"
            )

    def address(self) -> int:
        """Return where `recv` lies; waits for pending operations on it."""
        self.recv.wait_to_read()
        pointer = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(self.recv.handle, ctypes.byref(pointer)))
        return pointer.value or 0

    def store_apart(self) -> None:
        """Keep the value apart from what is received, for an updater to change."""
        if self.stored is self.recv:
            self.stored = self._empty()
            self.recv.copyto(self.stored)

    def gather(self, arrays: List[Array]) -> None:
        """Sum `arrays`, one for each device, into `send`; in the order given, rounded as stock."""
        if len(arrays) == 1:
            arrays[0].copyto(self.send)
            return
        # Copies first: an operator must neither see another device's array nor `send`.
        copies = [array.copyto(mx.cpu()) for array in arrays]
        total = copies[0]
        for start in range(1, len(copies), _SUM_AT_ONCE):
            part = copies[start]
            for copy in copies[start + 1 : start + _SUM_AT_ONCE]:
                part = part + copy
            total = total + part
        total.copyto(self.send)

    def copy_out(self, outs: List[Array]) -> None:
        """Copy the stored value into each of `outs`, of any device and dtype."""
        for out in outs:
            self.stored.copyto(out)
