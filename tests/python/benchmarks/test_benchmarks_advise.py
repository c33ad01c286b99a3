"""Predictions beside the results that are kept."""

import json
import pathlib

import pytest

from benchmarks.jobs.advise import coded_rows, compared_table, torch_rows

RESULTS = pathlib.Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize("name", ["", "-others-r", "-100mbit", "-four"])
def test_predictions_are_near_the_steps_that_pytorch_took(name: str) -> None:
    rows = torch_rows(json.loads((RESULTS / f"replay-torch{name}.json").read_text()))
    errors = {
        f"{row['name']}, {row['arm']}": row["predicted"] / row["measured"] - 1 for row in rows
    }
    assert len(errors) >= 12
    assert {name: error for name, error in errors.items() if abs(error) > 0.1} == {}
    arms = {row["arm"] for row in rows}
    assert {"ddp", "ddp-6"} < arms
    assert compared_table(rows).count("%)") == len(rows)


def test_predictions_are_near_the_steps_that_compressed_gradients_took() -> None:
    files = sorted(RESULTS.glob("replay-coded*.json"))
    rows = [row for file in files for row in coded_rows(json.loads(file.read_text()))]
    errors = {
        f"{row['name']}, {row['arm']}": row["predicted"] / row["measured"] - 1 for row in rows
    }
    assert len(errors) >= 30
    far = {name: error for name, error in errors.items() if abs(error) > 0.1}
    # There the processors, which all nodes share, are slower than the links.
    assert set(far) <= {f"1gbit, vgg16 / 8, r = 3, ours-{method}" for method in ("topk", "bf16")}
    assert all(error < 0 for error in far.values())
    assert {"ours", "ours-onebit", "ours-topk"} < {row["arm"] for row in rows}
