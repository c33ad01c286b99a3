"""A job finds out how fast its network is, and cuts tensors as suits it, unless it was told how."""

import re
from typing import Dict, List, Tuple

import slow

ENV = {
    "BYTESCHEDULER_LOG_LEVEL": "debug",
    "BYTESCHEDULER_TUNING": "off",
}


def decisions(env: Dict[str, str]) -> List[Tuple[str, str]]:
    """Run a job whose sums are checked on a slow link; who decided on which partitions."""
    said = slow.run("200mbit", 2, "cases.py", "native", "pieces", env={**ENV, **env})
    assert said.count("well done") == 2
    return re.findall(r"worker (\d): partitions of (\d+) bytes and a credit of", said)


def test_pieces_of_a_slow_link_are_small_once_that_is_known() -> None:
    assert decisions({}) == [("0", "32768")]


def test_what_was_set_stays() -> None:
    assert decisions({"BYTESCHEDULER_CREDIT": "512KiB"}) == []
