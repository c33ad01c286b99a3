"""Memory for RDMA, and the thread that uses it, are on the NUMA node of the card."""

import pathlib
import sys
from typing import Callable

NEAR = str(pathlib.Path(__file__).resolve().parent / "inside" / "near.py")


def test_memory_and_thread_are_near_the_card(inside: "Callable[..., str]") -> None:
    said = inside([sys.executable, NEAR], rdma=True, nodes=2, processors=4, limit_s=600)
    assert "all memory for RDMA lies near the cards" in said
