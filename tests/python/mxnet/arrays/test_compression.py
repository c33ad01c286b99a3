"""Parameters of gradient compression: what stock MXNet takes we take, and as it."""

import math
from typing import Dict, Optional

import mxnet as mx
import numpy as np
import pytest
from fakes import two_bits
from mxnet.base import MXNetError

from bytescheduler._native import Coding
from bytescheduler.mxnet._arrays.compression import compression_from

Params = Dict[str, object]


def coding_of(params: Params) -> Optional[Coding]:
    return compression_from(params).coding


def stock(params: Params) -> None:
    mx.kv.create("device").set_gradient_compression(params)


GOOD = [
    ({"type": "2bit"}, 0.5),
    ({"type": "2bit", "threshold": 0.25}, 0.25),
    ({"type": "2bit", "threshold": 2}, 2),
    ({"type": "2bit", "threshold": "0.125"}, 0.125),
    ({"type": "2bit", "threshold": np.float32(0.1)}, float(np.float32(0.1))),
    ({"type": "2bit", "threshold": 0.1}, float(np.float32(0.1))),
]


@pytest.mark.parametrize(("params", "threshold"), GOOD)
def test_a_threshold_is_a_float32(params: Params, threshold: float) -> None:
    stock(params)
    assert coding_of(params) == two_bits(threshold)
    assert str(coding_of(params)) == f"compressed to two bits with threshold {threshold:g}"


BAD = [
    ({}, "needs a type"),
    ({"threshold": 0.5}, "needs a type"),
    ({"type": "1bit"}, "Unknown type for gradient compression '1bit'"),
    ({"type": "none"}, "Unknown type"),
    ({"type": "2BIT"}, "Unknown type"),
    ({"type": 2}, "Unknown type"),
    ({"type": "2bit", "threshold": 0}, "threshold 0 "),
    ({"type": "2bit", "threshold": -1.5}, "threshold -1.5 "),
    ({"type": "2bit", "threshold": "many"}, "threshold 'many' "),
    ({"type": "2bit", "threshold": None}, "threshold 'None' "),
    ({"type": "2bit", "threshold": math.nan}, "want a finite number greater than 0"),
    ({"type": "2bit", "threshold": 1e-50}, "want a finite number greater than 0"),
    ({"type": "2bit", "threshold": 1e60}, "want a finite number greater than 0"),
]


@pytest.mark.parametrize(("params", "text"), BAD)
def test_parameters_that_stock_refuses_are_refused_with_its_class_of_error(
    params: Params, text: str
) -> None:
    with pytest.raises(MXNetError):
        stock(params)
    with pytest.raises(MXNetError, match=text):
        coding_of(params)


@pytest.mark.parametrize("params", [None, [("type", "2bit")], "2bit"])
def test_parameters_that_are_no_dict_are_refused_as_by_stock(params: Params) -> None:
    for refuses in (stock, coding_of):
        with pytest.raises(AssertionError, match="unexpected type for param_dict"):
            refuses(params)


def test_parameters_that_stock_would_ignore_are_refused() -> None:
    for params, text in (
        ({"type": "2bit", "treshold": 0.1}, "no option 'treshold'"),
        ({"type": "2bit", "threshold": math.inf}, "want a finite number greater than 0"),
    ):
        stock(params)
        with pytest.raises(MXNetError, match=text):
            coding_of(params)
