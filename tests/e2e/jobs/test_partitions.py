"""A job measures its network and chooses partitions that suit it, unless they are set."""

import re
from typing import Dict, List, Tuple

import pytest
import slow

ENV = {
    "BYTESCHEDULER_LOG_LEVEL": "debug",
    "BYTESCHEDULER_TUNING": "off",
}


def decisions(env: Dict[str, str]) -> List[Tuple[str, ...]]:
    """Run a job with checked sums on a slow link; return each rank, partition and credit chosen."""
    said = slow.run("200mbit", 2, "cases/cases.py", "native", "partitions", env={**ENV, **env})
    assert said.count("well done") == 2
    return re.findall(r"worker (\d): partitions of (\d+) bytes and a credit of (\d+)", said)


@pytest.mark.serial
def test_partitions_of_a_slow_link_are_small_once_that_is_known() -> None:
    ((worker, partition, credit),) = decisions({})
    assert (worker, int(partition)) == ("0", 32 << 10)
    # Two to each server, or what a link that answers late carries meanwhile: less than the default.
    assert 64 << 10 <= int(credit) < 512 << 10


@pytest.mark.parametrize("setting", ["BYTESCHEDULER_PARTITION", "BYTESCHEDULER_CREDIT"])
def test_a_partition_or_credit_that_was_set_stays(setting: str) -> None:
    assert decisions({setting: "512KiB"}) == []
