"""When steps take another time than they did, and when they only seem to."""

from typing import Optional

import pytest

from bytescheduler._tuning.drift import Drift


def first(drift: Drift, *steps: float) -> Optional[int]:
    """Return which of the steps shows that they have changed."""
    for number, seconds in enumerate(steps, 1):
        if drift.note(seconds) is not None:
            return number
    return None


def test_steps_that_stay_are_no_news() -> None:
    assert first(Drift(1.0), *[1.05, 0.95, 1.02, 0.98] * 50) is None


@pytest.mark.parametrize("now", [2.0, 1.15, 0.87])
def test_a_change_is_noticed_after_eight_steps(now: float) -> None:
    assert first(Drift(1.0), *[now] * 20) == 8


def test_a_change_in_the_middle_of_a_window_is_noticed_later() -> None:
    assert first(Drift(1.0), *[1.0] * 6, *[2.0] * 20) == 12


def test_pauses_are_no_change() -> None:
    assert first(Drift(1.0), *[1.0, 1.0, 1.0, 30.0] * 20) is None
    assert first(Drift(1.0), *([9.0] * 4 + [1.0] * 4) * 10) is None  # an evaluation now and then


def test_up_and_down_is_no_change() -> None:
    assert first(Drift(1.0), *([1.3] * 4 + [0.7] * 4) * 10) is None


def test_says_what_steps_take_now() -> None:
    drift = Drift(1.0)
    assert [drift.note(2.0) for _ in range(8)] == [None] * 7 + [2.0]


def test_a_small_change_waits_after_a_search_that_found_nothing() -> None:
    assert first(Drift(1.0, fruitless=1), *[1.25] * 120) == 104
    assert first(Drift(1.0, fruitless=2), *[1.25] * 240) == 204
    assert first(Drift(1.0, fruitless=50), *[2.0] * 2000) is None


def test_a_large_change_does_not_wait() -> None:
    assert first(Drift(1.0, fruitless=1), *[1.4] * 120) == 8
    assert first(Drift(1.0, fruitless=1), *[0.7] * 120) == 8
    assert first(Drift(1.0, fruitless=2), *[1.4] * 120) is None
    assert first(Drift(1.0, fruitless=2), *[1.8] * 120) == 8
