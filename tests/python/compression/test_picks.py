"""topk and randomk: a coding for each size of tensors."""

import logging

import numpy as np
import pytest

from bytescheduler._compression.params import compression_of
from bytescheduler._compression.picks import _coding_for
from bytescheduler._native import Coding


def test_a_fraction_gives_all_tensors_one_coding() -> None:
    params = {"compressor": "topk", "k": np.float64(0.01), "ef": "vanilla", "fp16": True}
    compression = compression_of(params, 65536)
    coding = Coding("topk", {"k": "0.01", "fp16": "True", "ef": "vanilla"})
    assert (compression.coding, compression.coding_for(65536, 4)) == (coding, coding)
    assert compression.coding_for(65535, 4) is None
    assert compression.widens
    assert compression.says_overflow


@pytest.mark.parametrize("k", [1000, 1000.0, np.int64(1000)])
def test_a_whole_k_gives_each_size_its_share(k: object) -> None:
    compression = compression_of({"compressor": "randomk", "k": k, "seed": 7}, 0)

    def coding(elements: int) -> Coding:
        return Coding("randomk", {"k": f"1000/{elements}", "seed": "7"})

    assert compression.coding == coding(1_024_000)
    assert compression.coding_for(4 * 5000, 4) == coding(5000)
    assert compression.coding_for(2 * 5000, 2) == coding(5000)
    assert compression.coding_for(4 * 2_000_000, 4) == coding(1_024_000)
    assert str(compression) == "compressed to randomk with k 1000, seed 7"


def test_a_tensor_travels_plain_if_its_codes_are_no_smaller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _coding_for.cache_clear()
    compression = compression_of({"compressor": "topk", "k": 1000}, 0)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert compression.coding_for(4 * 1500, 4) is None
            assert compression.coding_for(4 * 1501, 4) is not None
            assert compression.coding_for(0, 4) is None
    assert [record.getMessage() for record in caplog.records] == [
        "compressor 'topk' with k 1000 makes 6000 bytes of the 6000 bytes of a tensor: tensors of "
        "that size travel as they are"
    ]


def test_arrays_of_sixteen_bits_are_smaller_themselves() -> None:
    compression = compression_of({"compressor": "topk", "k": 0.4}, 0)
    assert compression.coding_for(4 * 1000, 4) is not None
    assert compression.coding_for(2 * 1000, 2) is None
    halves = compression_of({"compressor": "topk", "k": 0.4, "fp16": True}, 0)
    assert halves.coding_for(2 * 1000, 2) is not None


@pytest.mark.parametrize(
    ("name", "k", "bound"),
    [
        ("topk", 0.4, "65,504"),
        ("randomk", 0.4, "65,504 k"),
        ("randomk", 20, "65,504 k / n of n elements"),
    ],
)
def test_half_values_that_keep_no_rest_are_told_of(
    name: str, k: float, bound: str, caplog: pytest.LogCaptureFixture
) -> None:
    params = {"compressor": name, "k": k, "fp16": True}
    with caplog.at_level(logging.WARNING):
        compression_of({**params, "ef": "vanilla"}, 0)
        assert caplog.records == []
        compression_of(params, 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"compressor {name!r} with fp16 cuts a value above {bound} to that: with 'ef': 'vanilla' "
        "the rest comes later"
    ]
