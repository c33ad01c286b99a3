"""MXNet's C functions by their addresses, and what the native extension opens with them."""

import ctypes
import os
from typing import Any, Dict

import mxnet as mx
from mxnet.base import _LIB

from bytescheduler._native import MXNetCopier, MXNetPlugin, MXNetStore, Worker
from bytescheduler.mxnet._types import Store

# By their names in src/frontend/mxnet/mxnet_functions.h.
_SYMBOLS = {
    "push_async_nd": "MXEnginePushAsyncND",
    "create_array": "MXNDArrayCreateEx",
    "free_array": "MXNDArrayFree",
    "share_array": "MXShallowCopyNDArray",
    "get_data": "MXNDArrayGetData",
    "get_shape": "MXNDArrayGetShapeEx64",
    "get_dtype": "MXNDArrayGetDType",
    "get_storage_type": "MXNDArrayGetStorageType",
    "get_context": "MXNDArrayGetContext",
    "store_create": "MXKVStoreCreate",
    "store_init": "MXKVStoreInit",
    "store_push": "MXKVStorePush",
    "store_pull": "MXKVStorePull",
    "store_push_pull": "MXKVStorePushPull",
    "store_free": "MXKVStoreFree",
    "last_error": "MXGetLastError",
}
# Those without a C name, as compilers for Linux call them; an MXNet may not show them.
_MANGLED = {
    # mxnet::NDArray::Reorder2DefaultAsync() const
    "make_plain": "_ZNK5mxnet7NDArray20Reorder2DefaultAsyncEv",
    # mxnet::NDArray::Reorder2Default() const
    "plain_copy": "_ZNK5mxnet7NDArray15Reorder2DefaultEv",
    # mxnet::NDArray::Chunk::IsMKLDNN() const
    "is_blocked": "_ZNK5mxnet7NDArray5Chunk8IsMKLDNNEv",
    # mxnet::NDArray::Chunk::Reorder2Default()
    "make_default": "_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv",
    # mxnet::CopyFromTo(mxnet::NDArray const&, mxnet::NDArray const&, int, bool)
    "copy_array": "_ZN5mxnet10CopyFromToERKNS_7NDArrayES2_ib",
}


def _functions() -> Dict[str, int]:
    functions = {name: _address(getattr(_LIB, symbol)) for name, symbol in _SYMBOLS.items()}
    for name, symbol in _MANGLED.items():
        function = getattr(_LIB, symbol, None)
        functions[name] = 0 if function is None else _address(function)
    return functions


def _address(function: Any) -> int:  # noqa: ANN401 - ctypes does not name its type
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def engine_blocks() -> bool:
    """Return whether MXNet's operations run inside the calls that push them."""
    return os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"


def open_plugin(worker: Worker, *, in_place: bool = False) -> MXNetPlugin:
    """Return the plug-in between `worker` and MXNet's engine; see there for `in_place`."""
    return MXNetPlugin(worker, _functions(), in_place, copies=not engine_blocks())


def open_kvstore(store: Store) -> MXNetStore:
    """Return `store` for a kvstore back end; it must outlive the back end's last operation."""
    return MXNetStore(store.handle.value, _functions())


def open_copier() -> MXNetCopier:
    """Return MXNet's engine's own copy between plain arrays, without the price of an operator.

    One thread at a time may use it.
    """
    return MXNetCopier(_functions(), mx.nd.NDArray)
