"""When steps take another time than they did, and when they only seem to."""

import random
from typing import Optional

import pytest

from bytescheduler._tuning.drift import Drift


def searched(*levels: float) -> Drift:
    """Return one that knows of searches which found nothing, where steps took so long."""
    drift = Drift()
    for level in levels:
        drift.searched(level, has_result=False)
    return drift


def found(seconds: float) -> Drift:
    """Return one that knows of a search that found something; now steps take so long."""
    drift = Drift()
    drift.searched(seconds, has_result=True)
    return drift


def first(drift: Drift, *steps: float) -> Optional[int]:
    """Return which of the steps shows that they have changed."""
    for number, seconds in enumerate(steps, 1):
        if drift.note(seconds) is not None:
            return number
    return None


def test_steps_that_stay_are_no_news() -> None:
    assert first(found(1.0), *[1.05, 0.95, 1.02, 0.98] * 50) is None


@pytest.mark.parametrize("now", [2.0, 1.15, 0.87])
def test_a_change_is_noticed_after_eight_steps(now: float) -> None:
    assert first(found(1.0), *[now] * 20) == 8


def test_a_change_in_the_middle_of_a_window_is_noticed_later() -> None:
    assert first(found(1.0), *[1.0] * 6, *[2.0] * 20) == 12


def test_pauses_are_no_change() -> None:
    assert first(found(1.0), *[1.0, 1.0, 1.0, 30.0] * 20) is None
    assert first(found(1.0), *([9.0] * 4 + [1.0] * 4) * 10) is None  # an evaluation now and then


def test_up_and_down_is_no_change() -> None:
    assert first(found(1.0), *([1.3] * 4 + [0.7] * 4) * 10) is None


def test_a_drift_tells_the_present_time_of_steps() -> None:
    drift = found(1.0)
    assert [drift.note(2.0) for _ in range(8)] == [None] * 7 + [2.0]


def test_a_change_is_noticed_right_behind_searches_that_found_nothing() -> None:
    for now in (1.15, 0.87, 2.0):
        assert first(searched(1.0), *[now] * 20) == 8
        assert first(searched(*[1.0] * 20), *[now] * 20) == 8


def test_a_step_time_of_a_search_without_result_is_no_news_for_a_while() -> None:
    assert first(searched(2.0, 1.0), *[2.0] * 300) == 204
    assert first(searched(2.0, 1.0), *[1.9] * 150) is None
    assert first(searched(3.0, 2.0, 1.0), *([2.0] * 4 + [3.0] * 4) * 45) is None
    assert first(searched(*[2.0] * 49, 1.0), *[2.0] * 2000) is None


def test_a_step_time_that_began_a_search_without_result_is_no_news_either() -> None:
    drift = searched(1.0)
    assert first(drift, *[1.2] * 20) == 8
    drift.searched(1.0, has_result=False)
    assert first(drift, *[1.25] * 150) is None


def test_a_search_with_a_result_forgets_the_searches_before() -> None:
    drift = searched(2.0, 1.5)
    drift.searched(1.0, has_result=True)
    assert first(drift, *[2.0] * 20) == 8
    drift.searched(2.0, has_result=False)
    assert first(drift, *[1.4] * 20) == 8


def test_steps_that_change_all_the_time_are_searched_more_and_more_rarely() -> None:
    chance = random.Random(1)
    drift = searched(1.0)
    searches = []
    for step in range(100_000):
        if step % 20 == 0:
            level = chance.uniform(0.5, 2.0)
        if drift.note(level) is not None:
            searches.append(step)
            drift.searched(level, has_result=False)
    assert len(searches) < 25
    assert sum(step > 50_000 for step in searches) < len(searches) / 4
