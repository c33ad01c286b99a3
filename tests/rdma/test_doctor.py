"""The doctor's measurement of READs between two soft-RoCE devices."""

import pathlib
import re
import sys
from typing import Callable

READS = pathlib.Path(__file__).resolve().parent / "inside" / "reads.py"


def test_the_doctor_measures_reads_between_the_cards(inside: "Callable[..., str]") -> None:
    said = inside([sys.executable, str(READS)], rdma=True)
    for size in (4, 256 << 10):
        assert re.search(rf"^ok a READ of {size} bytes from .* by RDMA: [\d.]+ ms", said, re.M), (
            said
        )
