"""MXNet's engine's own copy between plain arrays, without the price of an operator."""

import mxnet as mx

from bytescheduler._native import MXNetCopier
from bytescheduler.mxnet._link import _address

_FUNCTIONS = {
    "create_array": "MXNDArrayCreateEx",
    "free_array": "MXNDArrayFree",
    "get_shape": "MXNDArrayGetShapeEx64",
    "get_dtype": "MXNDArrayGetDType",
    "get_storage_type": "MXNDArrayGetStorageType",
    "get_context": "MXNDArrayGetContext",
    "store_create": "MXKVStoreCreate",
    "store_init": "MXKVStoreInit",
    "store_push": "MXKVStorePush",
    "store_pull": "MXKVStorePull",
    "store_free": "MXKVStoreFree",
    "last_error": "MXGetLastError",
}


def open_copier() -> MXNetCopier:
    """Return a copier; one thread at a time may use it."""
    functions = {name: _address(symbol) for name, symbol in _FUNCTIONS.items()}
    return MXNetCopier(functions, mx.nd.NDArray)
