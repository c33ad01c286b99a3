"""What `set_gradient_compression` takes, checked as stock MXNet checks it."""

import ctypes
import math
from typing import Mapping

import mxnet as mx

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
