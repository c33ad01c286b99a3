"""Lines of the log about compression."""

from typing import Dict, List

import pytest
from inline_snapshot import snapshot

from bytescheduler._compression.log_lines import Size, summary_line, unsuited_line
from bytescheduler._compression.params import compression_of
from bytescheduler._native import Coding

Params = Dict[str, object]
FLOATS = [Size(count, 4) for count in (1 << 20, 1 << 18, 1 << 17, 100, 10)]
HALVES = [Size(count, 2) for count in (1 << 20, 100)]


@pytest.mark.parametrize(
    ("params", "sizes", "text"),
    [
        (
            {"compressor": "onebit", "scaling": True, "ef": "vanilla"},
            FLOATS,
            snapshot(
                "compressing 3 of 5 tensors, 100 % of the bytes: onebit scaled, ef=vanilla: 1/32 "
                "both ways"
            ),
        ),
        (
            {"compressor": "bf16", "pull": "plain"},
            FLOATS,
            snapshot(
                "compressing 3 of 5 tensors, 100 % of the bytes: bf16, pull plain: 1/2 to the "
                "servers, all back"
            ),
        ),
        (
            {"type": "2bit", "threshold": 0.5},
            FLOATS,
            snapshot(
                "compressing 5 of 5 tensors, 100 % of the bytes: two bits with threshold 0.5: 1/16 "
                "to the servers, all back"
            ),
        ),
        (
            {"compressor": "onebit", "scaling": True},
            HALVES,
            snapshot(
                "compressing 1 of 2 tensors, 100 % of the bytes: onebit scaled: 1/16 both ways"
            ),
        ),
        (
            {"compressor": "bf16"},
            HALVES,
            snapshot("compressing 1 of 2 tensors, 100 % of the bytes: bf16: all both ways"),
        ),
        (
            # 1,000 of 2^17 elements, and of 2^20 too: 6 bytes each in place of 4 bytes an element.
            {"compressor": "topk", "k": 1000},
            [Size(1 << 17, 4), Size(1 << 20, 4)],
            "compressing 2 of 2 tensors, 100 % of the bytes: topk with k 1000: 1/389 both ways",
        ),
        (
            {"compressor": "topk", "k": 100_000},
            [Size(1 << 17, 4), Size(100, 4)],
            "compressing none of 2 tensors to topk with k 100000: all are below "
            "BYTESCHEDULER_MIN_COMPRESS=65536, or their codes are no smaller",
        ),
        (
            {"compressor": "bf16"},
            FLOATS[3:],
            snapshot(
                "compressing none of 2 tensors to bf16: all are below "
                "BYTESCHEDULER_MIN_COMPRESS=65536"
            ),
        ),
    ],
)
def test_a_line_tells_how_much_is_compressed(params: Params, sizes: List[Size], text: str) -> None:
    assert summary_line(compression_of(params, 65536), sizes) == text


def test_asynchronous_keys_send_codes_and_get_weights() -> None:
    sizes = [Size(1 << 15, 4), Size(1 << 15, 2, is_plain=True)]
    line = summary_line(compression_of({"compressor": "onebit"}, 65536), sizes, one_way=True)
    assert line.startswith("compressing 1 of 2 tensors, 67 % of the bytes: onebit")
    assert line.endswith(": 1/32 to the servers, weights back")


def test_shares_are_of_bytes_not_of_tensors() -> None:
    sizes = [Size(1 << 14, 4), *[Size(1 << 13, 4)] * 2]
    line = summary_line(compression_of({"compressor": "bf16"}, 65536), sizes)
    assert line.startswith("compressing 1 of 3 tensors, 50 % of the bytes: bf16: 1/2")


ONEBIT = Coding("onebit", {"scaling": "True"})


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "LAMB", "Lamb", "RMSProp", "RMSprop"])
def test_optimizers_that_divide_by_the_size_of_gradients_are_told(optimizer: str) -> None:
    line = unsuited_line(ONEBIT, optimizer)
    assert line is not None
    assert line.startswith(f"{optimizer} divides by the size of gradients, so what onebit loses")
    topk = unsuited_line(Coding("topk", {"k": "0.01"}), optimizer)
    assert topk == line.replace("onebit", "topk")
    assert unsuited_line(Coding("bf16", {}), optimizer) is None
    assert unsuited_line(None, optimizer) is None


@pytest.mark.parametrize("optimizer", ["SGD", "NAG", "NoneType"])
def test_other_optimizers_are_not_told_of(optimizer: str) -> None:
    assert unsuited_line(ONEBIT, optimizer) is None
