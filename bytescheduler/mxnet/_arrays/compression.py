"""What `set_gradient_compression` takes, checked as stock MXNet checks it."""

import ctypes
import math
from typing import List, Mapping

import mxnet as mx

from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._types import Array

_DEFAULT_THRESHOLD = 0.5


def threshold_of(params: Mapping[str, object]) -> float:
    """Return the threshold of two-bit compression, rounded to float32.

    Parameters
    ----------
    params : dict
        `type`, which is "2bit", and optionally `threshold`, a number or the text of one.

    Raises
    ------
    MXNetError
        Another type, no type, or a threshold that is no finite float32 greater than 0; also an
        option that does not exist, which stock MXNet ignores.
    AssertionError
        `params` is no dict.
    """
    assert isinstance(params, dict), f"unexpected type for param_dict: {type(params)}"
    unknown = sorted(str(name) for name in params if name not in ("type", "threshold"))
    if unknown:
        raise mx.base.MXNetError(
            f"gradient compression has no option {unknown[0]!r}, only 'type' and 'threshold'"
        )
    if "type" not in params:
        raise mx.base.MXNetError("gradient compression needs a type: {'type': '2bit'}")
    if params["type"] != "2bit":
        raise mx.base.MXNetError(
            f"Unknown type for gradient compression {params['type']!r}: want '2bit'"
        )
    given = params.get("threshold", _DEFAULT_THRESHOLD)
    try:
        threshold = ctypes.c_float(float(str(given))).value
    except ValueError:
        threshold = math.nan
    if not (threshold > 0 and math.isfinite(threshold)):
        raise mx.base.MXNetError(
            f"threshold {given!r} of gradient compression: want a finite number greater than 0"
        )
    return threshold


def check_compressible(tensor: Tensor, arrays: List[Array]) -> None:
    """Raise MXNetError unless what is pushed can travel in two bits an element."""
    if tensor.dtype.name != "float32":
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: {tensor.dtype.name} cannot be compressed to two bits, "
            "only float32"
        )
    if tensor.carries_rows or any(map(is_sparse, arrays)):
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: row_sparse arrays cannot be compressed to two bits, "
            "which would touch other rows; push dense ones"
        )
