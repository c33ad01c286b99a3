"""Predictions beside the results that are kept."""

import json
import pathlib

import pytest

from benchmarks.jobs import replay
from benchmarks.jobs.advise import coded_rows, compared_table, torch_rows
from bytescheduler._advise import ddp, fsdp, models
from bytescheduler._advise.shape import Shape

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
    assert {name: error for name, error in errors.items() if abs(error) > 0.1} == {}
    assert {"ours", "ours-onebit", "ours-topk"} < {row["arm"] for row in rows}


def test_arms_of_fsdp2_and_of_bfloat16_are_predicted_as_they_train() -> None:
    cell = {"model": "uniform", "scale": 8, "compute_s": 0.5, "name": "uniform / 8"}
    kept, sharded = ("fsdp", "fsdp-backend"), ("fsdp-reshard", "fsdp-reshard-backend")
    names = [*kept, *sharded, "ddp-bf16", "barrier"]
    cell["step_s"] = {**dict.fromkeys(names, 1.0), "fsdp-reshard": None}
    shape = Shape(4, 4)._asdict()
    rows = torch_rows({"rate": "1gbit", "shape": shape, "cells": [cell]})
    predicted = {row["arm"]: row["predicted"] for row in rows}
    assert predicted.keys() == {*kept, "fsdp-reshard-backend", "ddp-bf16"}
    layers = models.scaled("uniform", 8, 0.5)
    ring = replay.cluster_of(Shape(4, 4), 1e9).ring
    gloo, ours = fsdp.over_gloo(ring), fsdp.over_ours(ring)
    assert predicted["fsdp"] == fsdp.step_s(layers, gloo, reshards=False)
    assert predicted["fsdp-backend"] == fsdp.step_s(layers, ours, reshards=False)
    assert predicted["fsdp-reshard-backend"] == fsdp.step_s(layers, ours, reshards=True)
    # Buckets are filled in float32, and half of the bytes travel.
    twice_as_fast = ring._replace(bytes_per_s=2 * ring.bytes_per_s)
    assert predicted["ddp-bf16"] == pytest.approx(ddp.step_s(layers, twice_as_fast, 25 / 8))
