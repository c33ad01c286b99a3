"""The arguments of `set_gradient_compression`, and which arrays can be compressed."""

from typing import List, Mapping

import mxnet as mx

from bytescheduler._native import Coding
from bytescheduler.errors import Error
from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._types import Array


def coding_of(params: Mapping[str, object]) -> Coding:
    """Return the coding that a user asks for.

    Parameters
    ----------
    params : dict
        `type`, which names a codec of the engine, and that codec's options: values or their texts.

    Raises
    ------
    MXNetError
        Another type, no type, an option that the codec does not have, which stock MXNet ignores, or
        a value that makes no sense.
    AssertionError
        `params` is no dict.
    """
    assert isinstance(params, dict), f"unexpected type for param_dict: {type(params)}"
    texts = {str(name): str(value) for name, value in params.items()}
    try:
        return Coding(texts.pop("type", None), texts)
    except Error as error:
        raise mx.base.MXNetError(str(error)) from None


def check_compressible(tensor: Tensor, arrays: List[Array], coding: Coding) -> None:
    """Raise MXNetError unless what is pushed can be coded so."""
    if tensor.dtype.name != "float32":
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: {tensor.dtype.name} cannot be {coding}, only float32"
        )
    if tensor.carries_rows or any(map(is_sparse, arrays)):
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: row_sparse arrays cannot be {coding}, "
            "because that would touch other rows; push dense ones"
        )
