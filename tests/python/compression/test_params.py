"""Dictionaries of gradient compression, as BytePS's scripts write them."""

import logging
from typing import Dict

import numpy as np
import pytest

from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError

Params = Dict[str, object]
BF16 = Coding("bf16", {})
FP16 = Coding("fp16", {})
ONEBIT = Coding("onebit", {"scaling": "True"})
DITHERING = Coding("dithering", {"k": "2"})


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
        ({"compressor": "onebit", "scaling": True, "ef": "", "momentum": None}, ONEBIT),
        (
            {"compressor": "onebit", "scaling": True, "ef": "vanilla", "normalize": None},
            Coding("onebit", {"scaling": "True", "ef": "vanilla"}),
        ),
        (
            {"compressor": "dithering", "k": 2.0, "ef": None, "scaling": False, "seed": ""},
            DITHERING,
        ),
        (
            {"compressor": "dithering", "k": 2, "partition": "linear", "normalize": "max"},
            DITHERING,
        ),
        (
            {"compressor": "dithering", "k": 7.0, "partition": "natural", "normalize": "l2"},
            Coding("dithering", {"k": "7", "partition": "natural", "normalize": "l2"}),
        ),
        (
            {"compressor": "dithering", "k": 7, "bucket": 64.0, "seed": 9, "ef": "vanilla"},
            Coding("dithering", {"k": "7", "bucket": "64", "seed": "9", "ef": "vanilla"}),
        ),
        ({"compressor": "int8", "fp16": False}, Coding("int8", {})),
        (
            {"compressor": "int8", "seed": 5, "pull": "plain"},
            Coding("int8", {"seed": "5", "pull": "plain"}),
        ),
    ],
)
def test_keys_that_are_absent_are_left_out(params: Params, coding: Coding) -> None:
    before = dict(params)
    compression = compression_of(params, 65536)
    assert compression.coding == coding
    assert params == before
    assert (compression.coding_for(65535, 4), compression.coding_for(65536, 4)) == (None, coding)


def test_byteps_keys_that_are_absent_leave_mxnets_form() -> None:
    for absent in ({"compressor": None}, {"fp16": False, "ef": ""}):
        params: Params = {"type": "2bit", "threshold": 0.25, **absent}
        assert compression_of(params, 65536) == compression_of(
            {"type": "2bit", "threshold": 0.25}, 65536
        )


def test_numbers_count_whatever_their_type_is() -> None:
    for k in (np.float32(2), "2", "2.0", 2):
        assert compression_of({"compressor": "dithering", "k": k}, 0).coding == DITHERING
    topk = compression_of({"compressor": "topk", "k": 20, "ef": "vanilla"}, 0)
    assert compression_of({"compressor": "topk", "k": "20", "ef": "vanilla"}, 0) == topk
    for seed in (3, 3.0, "3"):
        coding = compression_of({"compressor": "randomk", "k": 0.5, "seed": seed}, 0).coding
        assert coding == Coding("randomk", {"k": "0.5", "seed": "3"})
        coding = compression_of({"compressor": "int8", "seed": seed}, 0).coding
        assert coding == Coding("int8", {"seed": "3"})
    assert compression_of({"momentum": "nesterov", "mu": np.float32(0.5)}, 0).mu == 0.5


def test_truth_values_of_numpy_count_as_pythons() -> None:
    params = {"compressor": "onebit", "scaling": np.bool_(True), "fp16": np.bool_(False)}
    assert compression_of(params, 0).coding == ONEBIT
    assert compression_of({"fp16": np.bool_(True)}, 0).coding == FP16


@pytest.mark.parametrize("params", [{"compressor": None}, {"compressor": "", "k": 1.0, "ef": ""}])
def test_no_compressor_compresses_nothing(params: Params) -> None:
    assert compression_of(params, 0) == Compression()


@pytest.mark.parametrize(
    ("params", "mu"),
    [
        ({"momentum": "nesterov"}, None),
        ({"compressor": None, "momentum": "nesterov", "mu": 0.9, "k": ""}, 0.9),
    ],
)
def test_momentum_goes_without_a_compressor(params: Params, mu: "float | None") -> None:
    assert compression_of(params, 65536) == Compression(has_momentum=True, mu=mu)


def test_momentum_goes_with_a_compressor() -> None:
    params = {"compressor": "onebit", "scaling": True, "momentum": "nesterov", "mu": 0.5}
    compression = compression_of(params, 65536)
    assert compression == Compression(
        ONEBIT, 65536, widens=True, says_overflow=True, has_momentum=True, mu=0.5
    )
    assert compression.is_on
    assert not Compression().is_on


def test_signs_without_scaling_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        compression_of({"compressor": "onebit", "scaling": False}, 0)
    assert "'scaling': True keeps their mean" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        compression_of({"compressor": "onebit", "scaling": True}, 0)
    assert caplog.text == ""


def test_two_bits_in_mxnets_form_take_every_size() -> None:
    compression = compression_of({"type": "2bit"}, 65536)
    assert compression.coding_for(4, 4) == Coding("2bit", {})
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
        assert compression_of({"compressor": "int8", "k": 2.0}, 0).coding == Coding("int8", {})
        params = {"compressor": "dithering", "k": 2.0, "fp16": True}
        assert compression_of(params, 0).coding == DITHERING
    assert [record.getMessage() for record in caplog.records] == [
        "compressor 'bf16' has no use for k 2.0 and fp16 True: left out",
        "compressor 'int8' has no use for k 2.0: left out",
        "compressor 'dithering' has no use for fp16 True: left out",
    ]
    caplog.clear()
    assert compression_of({"compressor": None, "k": 1.0}, 0) == Compression()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"type": "2bit", "compressor": "bf16"}, "type '2bit' beside .* compressor 'bf16'"),
        (
            {"compressor": "zip"},
            "Unknown compressor .* 'zip': want 'onebit', .*'bf16' or 'fp16', or",
        ),
        ({"type": "zip"}, "'zip': want '2bit', or in place of a type 'compressor': 'onebit',"),
        ({}, "needs a type or a compressor: want 'type': '2bit', or 'compressor': 'onebit'"),
        ({"compresor": "bf16"}, "needs a type or a compressor and has 'compresor' alone: want"),
        ({"ef": "vanilla", "scaling": True}, "ef 'vanilla' without a compressor"),
        ({"scaling": True}, "scaling True without a compressor"),
        ({"mu": 0.9}, "mu 0.9 without 'momentum': 'nesterov'"),
        ({"type": "2bit", "ef": "vanilla"}, "type '2bit' beside .* such as ef 'vanilla'"),
        ({"compressor": "bf16", "scaling": True}, r"no option 'scaling' \('True'\), only 'pull'"),
        ({"compressor": "bf16", "k": 0, "threshold": 0}, "no option 'threshold'"),
        ({"compressor": "bf16", "pull": "half"}, "pull 'half' .* want 'same', 'plain' or 'bf16'"),
        ({"compressor": "bf16", "fp16": "yes"}, "fp16 'yes': want True or False"),
        ({"compressor": None, "ef": "vanilla", "fp16": ""}, "ef 'vanilla' without a compressor"),
        ({"compressor": "onebit", "scaling": "yes"}, "scaling 'yes' .* want True or False"),
        ({"compressor": "onebit", "scaling": 1}, "scaling '1' .* want True or False"),
        ({"compressor": "onebit", "ef": "sparse"}, "ef 'sparse' .* want 'vanilla' or 'corrected'"),
        ({"compressor": "onebit", "ef": True}, "ef 'True' .* want 'vanilla' or 'corrected'"),
        ({"compressor": "bf16", "ef": "vanilla"}, "'bf16' has no option 'ef'"),
        ({"compressor": "onebit", "partition": "linear"}, r"no option 'partition' .*, only"),
        ({"compressor": "dithering"}, "'dithering' needs k, the number of levels"),
        ({"compressor": "dithering", "k": 0}, "k '0' .* want a whole number from 1 to 32767"),
        ({"compressor": "dithering", "k": 0.5}, "k '0.5' .* want a whole number from 1 to 32767"),
        ({"compressor": "dithering", "k": True}, "k 'True' .* want a whole number"),
        (
            {"compressor": "dithering", "k": 31, "partition": "natural"},
            "k '31' .* from 1 to 30 with partition 'natural'",
        ),
        ({"compressor": "dithering", "k": 7, "partition": "log"}, "want 'linear' or 'natural'"),
        ({"compressor": "dithering", "k": 7, "normalize": "l1"}, "want 'max' or 'l2'"),
        ({"compressor": "dithering", "k": 7, "bucket": 65}, "bucket '65' .* a multiple of 64"),
        ({"compressor": "dithering", "k": 7, "seed": 0}, "seed '0' .* want a whole number from 1"),
        ({"compressor": "dithering", "k": 7, "scaling": True}, "no option 'scaling'"),
        ({"compressor": "dithering", "k": 7, "ef": "sparse"}, "want 'vanilla' or 'corrected'"),
        ({"compressor": "int8", "bucket": 64}, "'int8' has no option 'bucket' .*'dithering' has"),
        ({"compressor": "bf16", "seed": 5}, "'bf16' has no option 'seed'"),
        ({"compressor": "bf16", "momentum": "polyak"}, "momentum 'polyak': want 'nesterov'"),
        ({"momentum": "nesterov", "mu": 1}, "mu 1: want a number between 0 and 1"),
        ({"momentum": "nesterov", "mu": True}, "mu True: want a number between 0 and 1"),
        ({"compressor": "bf16", "mu": 0.9}, "mu 0.9 without 'momentum': 'nesterov'"),
        ({"compressor": "2bit", "momentum": "nesterov"}, "momentum 'nesterov' beside two bits"),
        ({"fp16": True, "type": "2bit"}, "type '2bit' beside"),
        ({"compressor": "topk"}, "compressor 'topk' needs k: how many elements"),
        ({"compressor": "randomk", "k": ""}, "compressor 'randomk' needs k"),
        ({"compressor": "topk", "k": 0}, "k 0: want a whole number from 1 to 4294967295, or a"),
        ({"compressor": "topk", "k": 1.5}, "k 1.5: want"),
        ({"compressor": "topk", "k": True}, "k True: want"),
        ({"compressor": "topk", "k": "many"}, "k 'many': want"),
        ({"compressor": "topk", "k": float("nan")}, "k nan: want"),
        ({"compressor": "topk", "k": float("inf")}, "k inf: want"),
        ({"compressor": "topk", "k": 0.7}, "k of gradient compression is so large"),
        ({"compressor": "topk", "k": 0.1, "ef": "sparse"}, "ef 'sparse' .* want 'vanilla' or"),
        ({"compressor": "randomk", "k": 0.1, "ef": "sparsely"}, "'corrected' or 'sparse'"),
        (
            {"compressor": "topk", "k": 0.1, "seed": 5},
            r"no option 'seed' \('5'\), only 'k', 'fp16'",
        ),
        ({"compressor": "topk", "k": 0.1, "scaling": True}, "no option 'scaling'"),
        ({"compressor": "randomk", "k": 0.1, "seed": 0}, "seed '0' .* want a whole number from 1"),
        (
            {"compressor": "randomk", "k": 0.1, "seed": 1.5},
            "seed '1.5' .* want a whole number from 1",
        ),
        ({"type": "topk"}, "type 'topk', which is a compressor: write"),
    ],
)
def test_keys_and_values_that_make_no_sense_are_named(params: Params, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        compression_of(params, 0)
