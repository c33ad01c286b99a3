"""Numbers of dictionaries: values of any type, and texts."""

from fractions import Fraction

import numpy as np
import pytest

from bytescheduler._compression.numbers import number_of, text_of


@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        (3, 3.0, "3"),
        (3.0, 3.0, "3"),
        (np.float32(2), 2.0, "2"),
        (np.int64(7), 7.0, "7"),
        ("20", 20.0, "20"),
        ("0.01", 0.01, "0.01"),
        (0.01, 0.01, "0.01"),
        (Fraction(1, 4), 0.25, "0.25"),
        (np.float32(0.5), 0.5, "0.5"),
    ],
)
def test_a_number_counts_whatever_its_type_is(value: object, number: float, text: str) -> None:
    assert (number_of(value), text_of(value)) == (number, text)


def test_a_large_seed_keeps_all_its_digits() -> None:
    assert text_of(2**64 - 1) == text_of(np.uint64(2**64 - 1)) == "18446744073709551615"


@pytest.mark.parametrize("value", [True, False, None, "", "many", [1], 1j])
def test_other_values_are_no_numbers(value: object) -> None:
    assert number_of(value) is None
    assert text_of(value) == str(value)


def test_numbers_that_are_not_finite_keep_their_names() -> None:
    assert (text_of(float("nan")), text_of(float("inf"))) == ("nan", "inf")
