"""Priority acts on the wire: on a slow link an urgent tensor overtakes a big one."""

import json
from typing import Dict, List

import pytest
import slow

pytestmark = pytest.mark.serial


def arrivals(scheduling: str) -> "List[Dict[str, float]]":
    """Run two workers over a slow loopback; when each tensor's sum arrived, by worker."""
    env = {"BYTESCHEDULER_SCHEDULING": scheduling}
    said = slow.run("200mbit", 1, "steps/overtaking_worker.py", env=env)
    lines = [line for line in said.splitlines() if line.startswith("ARRIVED ")]
    assert len(lines) == 2, said
    return [json.loads(line[len("ARRIVED ") :]) for line in lines]


def test_an_urgent_tensor_overtakes_a_big_one() -> None:
    for arrived in arrivals(scheduling="1"):
        assert arrived["urgent"] < arrived["big"] / 2, arrived


def test_without_scheduling_it_waits_behind_the_big_one() -> None:
    # The test of the test: the same bytes, first ready first sent.
    for arrived in arrivals(scheduling="0"):
        assert arrived["urgent"] > arrived["big"] / 2, arrived
