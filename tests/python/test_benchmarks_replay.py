"""What the replay makes of its options and of what its jobs take."""

import argparse
import pathlib
import sys
from typing import Any, Dict, List, Optional

import pytest

# Behind all that is installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from benchmarks import lab_job, replay  # noqa: E402


def test_any_rate_of_tc_is_taken_and_the_rest_refused() -> None:
    assert lab_job.rate("none") == "none"
    assert lab_job.payload_bytes_per_s(lab_job.rate("25gbit")) == 0.953 * 25e9 / 8
    assert lab_job.payload_bytes_per_s(lab_job.rate("300mbit")) == 0.953 * 3e8 / 8
    for wrong in ("1.5gbit", "fast", "gbit", "5furlong", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{wrong}: want kbit, mbit or gbit"):
            lab_job.rate(wrong)


def test_misspelt_names_are_refused_before_anything_starts() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="vgg: want bert-base, "):
        replay.model_names("vgg16,vgg")
    with pytest.raises(argparse.ArgumentTypeError, match="0.001 to 1000"):
        replay.numbers("1,0")
    with pytest.raises(argparse.ArgumentTypeError, match="0.001 to 1000"):
        replay.numbers("1,nan")


def options(**given: object) -> argparse.Namespace:
    usual = {"models": ["vgg16"], "scale": None, "compute": None, "ratios": [1.0], "rate": "1gbit"}
    return argparse.Namespace(**{**usual, **given})


def test_a_ratio_says_how_much_compute_there_is() -> None:
    half, once = replay.cells_of(options(ratios=[0.5, 1.0]))
    size = sum(step.size_bytes for step in once.steps)
    assert once.compute_s == pytest.approx(size * 8 / 0.953e9, abs=0.001)
    assert half.compute_s == pytest.approx(2 * once.compute_s, abs=0.002)
    assert sum(s.forward_s + s.backward_s for s in half.steps) == pytest.approx(half.compute_s)
    assert (once.name, once.scale) == ("vgg16 / 8, r = 1", 8)


def test_compute_that_is_given_is_taken() -> None:
    (cell,) = replay.cells_of(options(scale=80, compute=0.25, rate="none"))
    assert (cell.scale, cell.compute_s, cell.name) == (80, 0.25, "vgg16 / 80, 0.25 s")


def test_layers_by_name_stand_in_the_order_of_their_numbers_as_text() -> None:
    assert replay.places(12, by_name=False) == list(range(12))
    assert replay.places(12, by_name=True) == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]


def cell(name: str, ideal_s: float, **all_s: "List[Optional[float]]") -> "Dict[str, Any]":
    return {"name": name, "ideal_s": ideal_s, "all_s": all_s}


def test_a_table_shows_ratios_and_which_runs_hung() -> None:
    rows = [
        cell("a", 0.9, stock=[2.0, 4.0, 3.0], p3=[None, 1.2, 1.2], ours=[1.0, 1.0, 1.5]),
        cell("b", 0.4, stock=[1.0, 1.0, 1.0], p3=[None, None, None], ours=[0.5, 0.5, 0.5]),
    ]
    _, _, first, second, _, means = replay.table({"rate": "1gbit", "cells": rows}).splitlines()
    assert first == "| a | 3.000 | 1.200 (hung 1 of 3) | 1.000 | 0.900 | 0.900 | 3.000 | 1.200 |"
    assert second == "| b | 1.000 | hung | 0.500 | 0.400 | 0.800 | 2.000 | – |"
    assert means == (
        "over ours: geometric means ideal 0.849, stock 2.449, p3 1.200; "
        "least ideal 0.800, stock 2.000, p3 1.200"
    )


def test_what_is_tuned_is_compared_where_it_is_there() -> None:
    (row,) = [cell("a", 1.0, ours=[2.0], **{"ours-tuned": [1.25]})]
    assert replay.table({"rate": "1gbit", "cells": [row]}).splitlines()[2] == (
        "| a | 2.000 | 1.250 | 1.000 | 0.800 | 1.600 |"
    )
