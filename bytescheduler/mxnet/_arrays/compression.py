"""The arguments of `set_gradient_compression`, and which arrays and calls can be compressed so."""

from typing import Callable, Dict, List, Mapping, Optional

import mxnet as mx

from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._native import Coding
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


def by_coding(
    tensors: List[Tensor], coding_of: Callable[[Tensor], Optional[Coding]]
) -> Dict[Optional[Coding], List[Tensor]]:
    """Return the tensors of each coding, in their order."""
    groups: Dict[Optional[Coding], List[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(coding_of(tensor), []).append(tensor)
    return groups


def check_change(before: Compression, after: Compression, *, coded: bool, for_good: bool) -> None:
    """Raise MXNetError if compression cannot change any more.

    Parameters
    ----------
    before, after : Compression
        The compression until now, and the next.
    coded : bool
        Whether something was pushed with `before`.
    for_good : bool
        Whether the store compresses all from the first call on.
    """
    if after.coding is None and before.coding is not None and for_good:
        raise mx.base.MXNetError(
            "MXNet's own store compresses all that it carries from the first call on, so "
            "gradient compression cannot be turned off any more"
        )
    if coded and not (before.is_two_bit and after.is_two_bit):
        raise mx.base.MXNetError(
            f"gradients were pushed {before}, so they cannot be {after} any more: set gradient "
            "compression once, before the first push"
        )


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
