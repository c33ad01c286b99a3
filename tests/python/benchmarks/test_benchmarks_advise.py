"""Predictions with PyTorch beside the results that are kept."""

import json
import pathlib

import pytest

from benchmarks.jobs.advise import torch_rows, torch_table

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
    assert torch_table(rows).count("%)") == len(rows)
