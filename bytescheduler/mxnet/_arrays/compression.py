"""The arguments of `set_gradient_compression`, and which arrays can be compressed."""

from typing import List, Mapping

import mxnet as mx

from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._settings import Settings
from bytescheduler.errors import Error
from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._arrays.tensor import HALVES, Tensor
from bytescheduler.mxnet._types import Array


def compression_from(params: Mapping[str, object]) -> Compression:
    """Return the compression that a user asks for.

    Parameters
    ----------
    params : dict
        `type` or `compressor`, which names a codec of the engine, and options: values or their
        texts (`_compression/params.py`).

    Raises
    ------
    MXNetError
        Another type, no type, an option that the codec does not have, which stock MXNet ignores, or
        a value that makes no sense.
    AssertionError
        `params` is no dict.
    """
    assert isinstance(params, dict), f"unexpected type for param_dict: {type(params)}"
    try:
        return compression_of(params, Settings.read().min_compress_bytes)
    except Error as error:
        raise mx.base.MXNetError(str(error)) from None


def check_compressible(tensor: Tensor, arrays: List[Array], compression: Compression) -> None:
    """Raise MXNetError unless what is pushed can be compressed so."""
    coding, dtype = compression.coding, tensor.dtype.name
    dtypes = ("float32", *HALVES) if compression.widens else ("float32",)
    if dtype not in dtypes:
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: {dtype} cannot be {coding}, only {', '.join(dtypes)}"
        )
    if tensor.carries_rows or any(map(is_sparse, arrays)):
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: row_sparse arrays cannot be {coding}, "
            "because that would touch other rows; push dense ones"
        )
