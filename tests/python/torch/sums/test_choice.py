"""The arguments `compression` and `compression_params`: how gradients of each size travel."""

import re
from typing import Any, Dict

import pytest
import torch
from inline_snapshot import snapshot

from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError, UsageError
from bytescheduler.torch._sums.choice import choice_of
from bytescheduler.torch._sums.compression import Compression

Params = Dict[str, object]
ONEBIT: Params = {"compressor": "onebit", "scaling": True, "ef": "vanilla"}
KIB = 1024


def test_small_tensors_travel_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_MIN_COMPRESS", "100")
    choice = choice_of(None, ONEBIT)
    assert choice.compressor_for(99, 4) is Compression.none
    coding = Coding("onebit", {"scaling": "True", "ef": "vanilla"})
    assert choice.compressor_for(100, 4).coding == coding
    assert (choice.cut_for(99, 4), choice.cut_for(100, 4)) == (None, coding)


def test_two_bits_have_every_size_and_cut_nothing() -> None:
    choice = choice_of(None, {"type": "2bit", "threshold": 0.25})
    assert choice.cut_for(64 * KIB, 4) is None
    assert choice.compressor_for(4, 4).coding == Coding("2bit", {"threshold": "0.25"})


def test_half_precision_is_coded_as_float32_and_comes_back_as_it_was() -> None:
    compressor = choice_of(None, ONEBIT).compressor_for(64 * KIB, 4)
    for dtype in (torch.float16, torch.bfloat16):
        wide, context = compressor.compress(torch.ones(3, dtype=dtype))
        assert wide.dtype is torch.float32
        assert compressor.decompress(wide * 2, context).tolist() == [2, 2, 2]
        assert compressor.decompress(wide * 2, context).dtype is dtype
    same, context = compressor.compress(torch.ones(3))
    assert (same.dtype, context) == (torch.float32, None)


def test_factors_count_for_tensors_of_every_size() -> None:
    choice = choice_of(None, ONEBIT).scaled(0.5, 4)
    for size_bytes in (4, 64 * KIB):
        compressor = choice.compressor_for(size_bytes, 4)
        sent, context = compressor.compress(torch.ones(1))
        assert (sent.item(), compressor.decompress(sent, context).item()) == (0.5, 2)
    assert choice.compressor_for(64 * KIB, 4).coding == choice.cut_for(64 * KIB, 4)
    assert choice.is_coded(64 * KIB, 4)
    assert str(choice) != str(choice_of(None, ONEBIT))


@pytest.mark.parametrize(
    ("params", "dtype", "names"),
    [
        (ONEBIT, torch.float64, "torch.float32, torch.float16, torch.bfloat16"),
        ({"compressor": "bf16"}, torch.complex64, "torch.float32, torch.float16, torch.bfloat16"),
        ({"type": "2bit"}, torch.float16, "torch.float32"),
    ],
)
def test_a_dtype_without_codes_is_refused_with_the_right_dtypes(
    params: Params, dtype: torch.dtype, names: str
) -> None:
    choice = choice_of(None, params)
    with pytest.raises(UsageError, match=rf"w: {dtype} cannot be compressed .*, only {names}; con"):
        choice.check_dtype(dtype, 64 * KIB, 4, "w")
    choice.check_dtype(torch.float32, 64 * KIB, 4, "w")
    if choice.params.widens:
        choice.check_dtype(dtype, 64 * KIB - 1, 4, "w")  # it travels plain


def test_numbers_without_a_fraction_have_no_momentum() -> None:
    choice = choice_of(None, {"momentum": "nesterov", "mu": 0.5})
    with pytest.raises(UsageError, match="w: torch.complex64 has no momentum 'nesterov' of"):
        choice.check_dtype(torch.complex64, 8, 8, "w")
    choice.check_dtype(torch.float64, 8, 8, "w")


def test_choices_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        str(choice_of(None, None)),
        str(choice_of("fp16", None)),
        str(choice_of(Compression.two_bit(0.5), None)),
        str(choice_of(Compression.two_bit(0.25), None)),
        str(choice_of(None, ONEBIT)),
        str(choice_of(None, {**ONEBIT, "ef": "corrected"})),
        str(choice_of(None, {**ONEBIT, "momentum": "nesterov", "mu": 0.9})),
        str(choice_of(None, {**ONEBIT, "momentum": "nesterov", "mu": 0.8})),
        str(choice_of(None, {"momentum": "nesterov", "mu": 0.8})),
        str(choice_of(None, {"type": "2bit"})),
    ]
    monkeypatch.setenv("BYTESCHEDULER_MIN_COMPRESS", "4")
    texts.append(str(choice_of(None, ONEBIT)))
    assert len(set(texts)) == len(texts)
    assert texts[6] == snapshot(
        "compressed to onebit scaled, ef vanilla, with momentum 'nesterov' of 0.9, from 65536 "
        "bytes on (BYTESCHEDULER_MIN_COMPRESS)"
    )


@pytest.mark.parametrize(
    ("compression", "params", "text"),
    [
        (
            "fp16",
            ONEBIT,
            "compression=Compression.fp16 beside compression_params={'compressor': 'onebit'",
        ),
        (Compression.two_bit(1), {"type": "2bit"}, "pass one of them"),
        (None, "onebit", "compression_params='onebit': want a dictionary, such as {'compressor'"),
        (None, [], "compression_params=[]: want a dictionary"),
        (None, {"momentum": "nesterov"}, "momentum 'nesterov' has no number: add 'mu': 0.9"),
    ],
)
def test_arguments_that_clash_or_make_no_sense_are_refused(
    compression: Any,  # noqa: ANN401
    params: Any,  # noqa: ANN401
    text: str,
) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        choice_of(compression, params)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"compressor": "topp"},
        {**ONEBIT, "threshold": 1},
        {"type": "2bit", "compressor": "bf16"},
    ],
)
def test_a_dictionary_that_makes_no_sense_is_refused(params: Params) -> None:
    before = dict(params)
    with pytest.raises(ConfigError, match="compressi|compressor"):
        choice_of(None, params)
    assert params == before


def test_no_compressor_compresses_nothing() -> None:
    choice = choice_of(None, {"compressor": None, "ef": "", "scaling": False})
    assert (choice.params.coding, choice.mu, str(choice)) == (None, 0, str(choice_of(None, None)))


def test_a_whole_k_gives_each_size_and_dtype_a_coding_of_its_own() -> None:
    choice = choice_of(None, {"compressor": "topk", "k": 1000})
    for elements, element_bytes, share in (
        (65_536, 4, "1000/65536"),
        (65_536, 2, "1000/65536"),  # as many elements in half the bytes
        (2_000_000, 4, "1000/1024000"),
    ):
        coding = Coding("topk", {"k": share})
        size = elements * element_bytes, element_bytes
        assert choice.compressor_for(*size).coding == choice.cut_for(*size) == coding
    # Six bytes a pick are no fewer than the bytes of such halves.
    assert choice_of(None, {"compressor": "topk", "k": 0.4}).cut_for(64 * KIB, 2) is None
