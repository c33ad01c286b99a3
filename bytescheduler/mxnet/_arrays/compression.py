"""The arguments of `set_gradient_compression`, and which arrays and calls can be compressed so."""

from typing import Any, Callable, Iterable, List, Mapping, Optional

import mxnet as mx

from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._native import Coding
from bytescheduler._settings import Settings
from bytescheduler.errors import Error
from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._arrays.tensor import HALVES, Tensor
from bytescheduler.mxnet._types import Array, Optimizer


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
        raise _rows_refused(tensor, coding)


def check_keys(
    tensors: Iterable[Tensor],
    coding_of: Callable[[Tensor], Optional[Coding]],
    compression: Compression,
    optimizer: Optimizer,
) -> None:
    """Raise MXNetError if a key that will be pushed cannot be compressed; before the first push.

    Keys of integers have no gradients.  Parameters of Gluon, which a Trainer's optimizer has, say
    whether they are frozen, and whether their gradients are row_sparse.  Two bits are as MXNet's,
    which looks at each push by itself.
    """
    params = getattr(optimizer, "param_dict", None) or {}
    for tensor in tensors if compression.widens else ():
        param, coding = params.get(tensor.key), coding_of(tensor)
        if coding is None or "float" not in tensor.dtype.name or _is_frozen(param):
            continue
        check_compressible(tensor, [], compression)
        if sends_rows(param):
            raise _rows_refused(tensor, coding)


def sends_rows(param: Any) -> bool:  # noqa: ANN401 - MXNet has no types
    """Return whether a Trainer pushes row_sparse gradients of this parameter of Gluon, or None."""
    return not _is_frozen(param) and getattr(param, "_grad_stype", "default") == "row_sparse"


def _is_frozen(param: Any) -> bool:  # noqa: ANN401 - MXNet has no types
    return bool(getattr(param, "grad_req", "") == "null")


def _rows_refused(tensor: Tensor, coding: Optional[Coding]) -> mx.base.MXNetError:
    return mx.base.MXNetError(
        f"key {tensor.key!r}: row_sparse arrays cannot be {coding}, "
        "because that would touch other rows; push dense ones"
    )
