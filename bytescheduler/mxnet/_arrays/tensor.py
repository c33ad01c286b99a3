"""One key's arrays: what it sends, what it receives, what it stores."""

import ctypes
import functools
from typing import Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP
from mxnet.ndarray.sparse import CSRNDArray

from bytescheduler._native import MXNetCopier, MXNetRounds
from bytescheduler.mxnet._arrays import sparse as _sparse
from bytescheduler.mxnet._types import Array, Key


class DType(NamedTuple):
    """An element type that the engine can sum."""

    name: str
    size_bytes: int


FLOAT32 = 0  # MXNet's code
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
HALVES = ("float16", "bfloat16")
# Up to here the price of an operation in MXNet's engine counts more than an early end of the push.
_JOINED_BYTES = 64 * 1024


@functools.lru_cache(maxsize=None)
def _shared(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """Return one tuple for all shapes that are equal: MXNet makes another at each question."""
    return shape


def _code_of(array: Array) -> int:
    code = ctypes.c_int()
    check_call(_LIB.MXNDArrayGetDType(array.handle, ctypes.byref(code)))
    return code.value


def _free(handle: NDArrayHandle) -> None:
    check_call(_LIB.MXNDArrayFree(handle))


def require_dense_or_rows(key: Key, array: Array) -> None:
    """Raise MXNetError unless `array` is dense or row_sparse."""
    if isinstance(array, CSRNDArray):
        raise mx.base.MXNetError(
            f"key {key!r}: {array.stype} arrays are not supported, as in MXNet's own stores; "
            "use dense or row_sparse ones"
        )


class Tensor:
    """The private arrays of one key, on the CPU, and ordinary engine operations on them.

    `send` and `recv` are the arrays that dependency proxies read and write through raw pointers.
    They are only ever copied into and copied from, and an updater reads `recv`.  So MXNet never
    keeps them in a layout of its own.  They are dense; a row_sparse array travels as a dense
    sum beside a vector that counts, for each row, the workers that have it (`rows`).

    A job may have many small keys, so one of these is kept small.  `send` is made when it is first
    used, which for most keys is never: what they push goes from where it lies, or is copied for the
    round only.  Both are mere handles until Python itself wants the arrays.

    Parameters
    ----------
    key : int or str
        The user's key.
    engine_key : int
        The engine's key.
    like : NDArray
        Has the shape and dtype of every array of this key.  If it is row_sparse, so is `stored`
        for an updater.
    copier : MXNetCopier
        For what is dense and on the CPU; everything else is copied by operators.
    wide : bool
        Whether half precision travels, and is stored, as float32.

    Raises
    ------
    MXNetError
        `like` is neither dense nor row_sparse, or of a dtype that cannot be summed.
    """

    __slots__ = (
        "_apart",
        "_like_code",
        "_recv",
        "_send",
        "_widened",
        "copier",
        "key",
        "rounds",
        "rows",
        "shape",
        "sparse",
    )

    carries_rows = False  # True if more travels than numbers to be added up
    one_sender = False  # True if each number is 0 on all workers but one

    def __init__(
        self, key: Key, engine_key: int, like: Array, copier: MXNetCopier, wide: bool = False
    ) -> None:
        require_dense_or_rows(key, like)
        self.key = key
        self._like_code = _code_of(like)
        if self._like_code not in _DTYPES:
            summable = ", ".join(dtype.name for dtype in _DTYPES.values())
            name = np.dtype(like.dtype).name
            raise mx.base.MXNetError(f"key {key!r}: dtype {name} cannot be summed, only {summable}")
        self.shape = _shared(like.shape)
        self.sparse = _sparse.is_sparse(like)
        self.rows: Optional[Tensor] = None
        # Only operators can copy between half precision and float32.
        self._widened = wide and self.dtype.name in HALVES
        self.copier = copier
        self._apart: Optional[Array] = None  # the value, unless it is what was received
        self._send: Optional[Array] = None
        self._recv: Optional[Array] = None
        shape = self._wire_shape()
        size_bytes = int(np.prod(shape, dtype=np.int64)) * _DTYPES[self.code].size_bytes
        recv = self._handle(shape)
        try:
            self.rounds = MXNetRounds(
                engine_key,
                None if key == engine_key else repr(key),
                recv.value,
                size_bytes,
                size_bytes <= _JOINED_BYTES,
            )
        except BaseException:
            _free(recv)
            raise

    def __del__(self) -> None:
        """Free the stages that never became arrays, which free themselves."""
        rounds = getattr(self, "rounds", None)
        if rounds is None:  # the constructor has raised
            return
        for handle, array in ((rounds.send, self._send), (rounds.recv, self._recv)):
            if array is None and handle != 0:
                _free(NDArrayHandle(handle))

    @property
    def engine_key(self) -> int:
        """The engine's key."""
        return self.rounds.key

    @property
    def code(self) -> int:
        """MXNet's code of the dtype that travels."""
        return FLOAT32 if self._widened else self._like_code

    @property
    def _wire_dtype(self) -> object:
        return _DTYPE_MX_TO_NP[self.code]

    @property
    def dtype(self) -> DType:
        """The dtype of the user's arrays."""
        return _DTYPES[self._like_code]

    @property
    def size_bytes(self) -> int:
        """The bytes that travel, in each direction."""
        return self.rounds.size_bytes

    @property
    def own_bytes(self) -> int:
        """The bytes of each of the user's arrays."""
        return self.size_bytes // _DTYPES[self.code].size_bytes * self.dtype.size_bytes

    @property
    def send(self) -> Array:
        """The array that is sent."""
        if self._send is None:
            self._send = mx.nd.NDArray(NDArrayHandle(self.send_handle))
        return self._send

    @property
    def send_handle(self) -> int:
        """The handle of `send`, without an array for it."""
        if self.rounds.send == 0:
            # It has memory from the first copy into it on, which may never come.
            self.rounds.send = self._handle(self._wire_shape(), delayed=True).value
        return self.rounds.send

    @property
    def recv(self) -> Array:
        """The array that the sum is received in."""
        if self._recv is None:
            self._recv = mx.nd.NDArray(NDArrayHandle(self.rounds.recv))
        return self._recv

    @property
    def stored(self) -> Array:
        """The value."""
        return self.recv if self._apart is None else self._apart

    @property
    def is_apart(self) -> bool:
        """True if the value is kept apart from the sum, for an updater."""
        return self._apart is not None

    @property
    def stored_handle(self) -> int:
        """The handle of `stored`, without an array for it."""
        return self.rounds.recv if self._apart is None else self._apart.handle.value

    @property
    def position(self) -> int:
        """The place among the tensors of one call."""
        return self.rounds.position

    @position.setter
    def position(self, position: int) -> None:
        self.rounds.position = position

    @property
    def is_usual(self) -> bool:
        """True if arrays are pushed and stored as they are."""
        return not self._widened and not self.sparse and self.rows is None

    @property
    def is_narrow(self) -> bool:
        """True if this travels in half precision."""
        return _DTYPES[self.code].name in HALVES

    def widened(self, engine_key: int) -> "Tensor":
        """Return another tensor for the same arrays that travels as float32, with our value."""
        like = mx.nd.empty(self.shape, dtype=self._wire_dtype)
        wide = Tensor(self.key, engine_key, like, self.copier, wide=True)
        wide.position, wide.sparse, wide.rows = self.position, self.sparse, self.rows
        wide.take(self.stored)
        return wide

    def _wire_shape(self) -> Tuple[int, ...]:
        """Return the shape of what travels."""
        return self.shape

    def _handle(self, shape: Tuple[int, ...], *, delayed: bool = False) -> NDArrayHandle:
        # Unless delayed it is allocated at once, so that its address never changes.
        return mx.nd.ndarray._new_alloc_handle(shape, mx.cpu(), delayed, self._wire_dtype)

    def check(self, array: Array) -> None:
        """Raise MXNetError unless `array` fits this key."""
        if self.fits(array):
            return
        require_dense_or_rows(self.key, array)
        code = _code_of(array)
        if array.shape != self.shape or code != self._like_code:
            got = _DTYPES[code].name if code in _DTYPES else str(array.dtype)
            raise mx.base.MXNetError(
                f"key {self.key!r} was initialised with shape {self.shape} and dtype "
                f"{self.dtype.name}, but this array has shape {array.shape} and dtype {got}"
            )

    def fits(self, array: Array) -> bool:
        """Return whether `array` can be copied to and from the arrays of this key as it is."""
        return not self._widened and self.copier.fits(array.handle.value, self.rounds.recv)

    def check_out(self, array: Array) -> None:
        """Raise MXNetError unless `array` can receive this key's value; its dtype may differ."""
        if self.fits(array):
            return
        require_dense_or_rows(self.key, array)
        if array.shape != self.shape:
            raise mx.base.MXNetError(
                f"key {self.key!r} was initialised with shape {self.shape}, "
                f"but the array to pull into has shape {array.shape}"
            )

    def address(self) -> int:
        """Return where `recv` lies; waits for pending operations on it."""
        handle, pointer = NDArrayHandle(self.rounds.recv), ctypes.c_void_p()
        check_call(_LIB.MXNDArrayWaitToRead(handle))
        check_call(_LIB.MXNDArrayGetData(handle, ctypes.byref(pointer)))
        return pointer.value or 0

    def take(self, value: Array) -> None:
        """Receive `value`, as if it had been sent."""
        if self.fits(value):
            self.copier.copy(value.handle.value, self.rounds.recv)
        else:
            _sparse.dense(value).copyto(self.recv)

    def store_apart(self) -> None:
        """Keep the value apart from what is received, for an updater to change."""
        if self._apart is not None:
            return
        if self.sparse:
            self._apart = _sparse.with_all_rows(self.recv)
        else:
            self._apart = mx.nd.NDArray(self._handle(self._wire_shape()))
            self.recv.copyto(self._apart)

    @property
    def received(self) -> Array:
        """The array for an updater: the sum; row_sparse, with every row that a worker sent, if any.

        If rows are not counted, every worker sends all of them.
        """
        if self.rows is None:
            return _sparse.with_all_rows(self.recv) if self.sparse else self.recv
        return _sparse.with_rows(self.recv, self.rows.recv)

    def gather(self, arrays: List[Array]) -> None:
        """Sum `arrays`, one for each device, into `send`; in the order given, rounded as stock."""
        if self.rows is not None:
            self.rows.gather([_sparse.row_flags(array) for array in arrays])
        if len(arrays) == 1 and self.fits(arrays[0]):
            self.copier.copy(arrays[0].handle.value, self.send_handle)
            return
        self._sum(arrays).copyto(self.send)

    @staticmethod
    def _sum(arrays: List[Array]) -> Array:
        """Return the dense sum on the first array's device, from which it goes to the host.

        Stock adds row_sparse arrays one by one.
        """
        if len(arrays) == 1:
            return _sparse.dense(arrays[0])
        at_once = 1 if any(map(_sparse.is_sparse, arrays)) else _SUM_AT_ONCE
        # An operator reads arrays of its own device only, and never `send`.
        copies = [_sparse.dense(array).as_in_context(arrays[0].context) for array in arrays]
        total = copies[0]
        for start in range(1, len(copies), at_once):
            part = copies[start]
            for copy in copies[start + 1 : start + at_once]:
                part = part + copy
            total = total + part
        return total

    def copy_out(self, outs: List[Array]) -> None:
        """Copy the stored value into each of `outs`, of any device, dtype and kind.

        The first device takes it from the host, and each further device from the first.
        """
        dense = self._apart is None or not _sparse.is_sparse(self._apart)
        if dense and len(outs) == 1 and self.fits(outs[0]):
            self.copier.copy(self.stored_handle, outs[0].handle.value)
            return
        kinds = [_sparse.is_sparse(out) for out in outs]
        values = {sparse: self._value(sparse) for sparse in set(kinds)}
        on_devices: Dict[Tuple[bool, type], Array] = {}
        for out, sparse in zip(outs, kinds):
            if out.context == mx.cpu():
                values[sparse].copyto(out)
            else:
                on_devices.get((sparse, out.dtype), values[sparse]).copyto(out)
                on_devices.setdefault((sparse, out.dtype), out)

    def _value(self, sparse: bool) -> Array:
        if not sparse:
            return _sparse.dense(self.stored)
        if _sparse.is_sparse(self.stored):
            return self.stored
        value = self.received if self._apart is None else self._apart
        return value if _sparse.is_sparse(value) else mx.nd.cast_storage(value, "row_sparse")

    def copy_rows_out(self, wanted: List[int], out: Array) -> None:
        """Copy the `wanted` rows of the stored value into a row_sparse array."""
        _sparse.retain(self.stored, wanted).copyto(out)
