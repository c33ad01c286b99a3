"""Dictionaries of gradient compression, as BytePS's scripts write them."""

import logging
from typing import Dict

import pytest

from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError

Params = Dict[str, object]
BF16 = Coding("bf16", {})
FP16 = Coding("fp16", {})


@pytest.mark.parametrize(
    ("params", "coding"),
    [
        ({"compressor": "bf16"}, BF16),
        ({"compressor": "fp16"}, FP16),
        ({"compressor": "bf16", "ef": None, "momentum": "", "scaling": False, "k": None}, BF16),
        ({"compressor": None, "fp16": True}, FP16),
        ({"fp16": True}, FP16),
        ({"compressor": "fp16", "fp16": True}, FP16),
        ({"compressor": "bf16", "pull": "plain"}, Coding("bf16", {"pull": "plain"})),
        ({"compressor": "2bit", "pull": "bf16"}, Coding("2bit", {"pull": "bf16"})),
        ({"type": None, "compressor": "bf16"}, BF16),
    ],
)
def test_keys_that_are_absent_are_left_out(params: Params, coding: Coding) -> None:
    before = dict(params)
    compression = compression_of(params, 65536)
    assert compression.coding == coding
    assert params == before
    assert (compression.coding_for(65535), compression.coding_for(65536)) == (None, coding)


@pytest.mark.parametrize("params", [{"compressor": None}, {"compressor": "", "k": 1.0, "ef": ""}])
def test_no_compressor_compresses_nothing(params: Params) -> None:
    assert compression_of(params, 0) == Compression()


def test_two_bits_in_mxnets_form_take_every_size() -> None:
    compression = compression_of({"type": "2bit"}, 65536)
    assert compression.coding_for(4) == Coding("2bit", {})
    assert compression.is_two_bit
    assert not compression.widens


def test_a_compressor_is_no_type() -> None:
    with pytest.raises(ConfigError, match="type 'bf16', which is a compressor: write"):
        compression_of({"type": "bf16"}, 65536)


def test_keys_that_scripts_always_pass_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert compression_of({"compressor": "bf16", "k": 2.0, "fp16": True}, 0).coding == BF16
    assert [record.getMessage() for record in caplog.records] == [
        "compressor 'bf16' has no use for k, so 2.0 is left out",
        "compressor 'bf16' has no use for fp16, so True is left out",
    ]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"type": "2bit", "compressor": "bf16"}, "type '2bit' beside .* compressor 'bf16'"),
        ({"compressor": "zip"}, "'zip': want '2bit' or 'fp16' or 'bf16'"),
        ({"compressor": "bf16", "scaling": True}, "no option 'scaling', only 'pull'"),
        ({"compressor": "bf16", "k": 0, "threshold": 0}, "no option 'threshold'"),
        ({"compressor": "bf16", "pull": "half"}, "pull 'half' .* want 'same', 'plain' or 'bf16'"),
        ({"compressor": "bf16", "fp16": "yes"}, "fp16 'yes': want True or False"),
        ({"compressor": None, "momentum": "nesterov"}, "momentum 'nesterov' without a compressor"),
        ({"fp16": True, "type": "2bit"}, "type '2bit' beside"),
    ],
)
def test_keys_and_values_that_make_no_sense_are_named(params: Params, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        compression_of(params, 0)
