"""The replay with TensorFlow: its arms, its options, and its table."""

import argparse
import json
import pathlib
import sys
from typing import Any, Dict, List

import pytest

from benchmarks.jobs import link_loads, replay
from benchmarks.lab import lab_job, ranked
from benchmarks.tensorflow import arms, operation_cost
from bytescheduler._advise.shape import Shape


def environments(monkeypatch: pytest.MonkeyPatch, arm: str) -> List[Dict[str, str]]:
    """Return what each worker of an arm is told by its command."""
    told: List[Dict[str, str]] = []

    def run_roles(_arm: str, roles: List[Any], *_: object) -> List[Any]:
        for role, _host, words in roles:
            if role == "worker":
                told.append(dict(word.split("=", 1) for word in words if "=" in word))
        return []

    monkeypatch.setattr(lab_job, "run_roles", run_roles)
    arms.run(arm, ["x"], 1.0, Shape())
    return told


def test_workers_of_a_stock_arm_are_told_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, told in enumerate(environments(monkeypatch, "mwms-ring")):
        assert json.loads(told["TF_CONFIG"]) == {
            "cluster": {"worker": ["10.201.0.1:9092", "10.201.0.2:9092"]},
            "task": {"type": "worker", "index": rank},
        }


@pytest.mark.parametrize("arm", ["barrier", "ours", "ours-direct"])
def test_our_workers_know_of_no_job_of_tensorflow(
    arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = environments(monkeypatch, arm)
    assert [(of["RANK"], "TF_CONFIG" in of) for of in told] == [("0", False), ("1", False)]


def test_a_run_has_more_time_to_start_and_workers_get_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: List[Any] = []

    def run(_arm: str, worker: List[str], limit_s: float, *_: object) -> List[Any]:
        ran.append((worker[worker.index("--library") + 1], limit_s))
        return [{"seconds": [9.0, 9.0, 0.5, 0.75, 0.5]}] * 2

    framework = replay.FRAMEWORKS["tensorflow"]
    monkeypatch.setitem(replay.FRAMEWORKS, "tensorflow", framework._replace(run=run))
    args = argparse.Namespace(framework="tensorflow", iterations=5, rate="1gbit", shape=Shape())
    args.timeout, args.library = 10.0, pathlib.Path("layers.so")
    cell = replay.Cell("vgg16", 8, 0.58, None)
    assert replay.run_arm("ours", cell, args, pathlib.Path("unused")) == 0.5
    ((library, limit_s),) = ran
    assert library == "layers.so"
    assert limit_s == pytest.approx(30.0 + 5 * cell.enough_s("1gbit"))


def test_stock_arms_are_a_ring_and_a_table_compares_the_best_of_them() -> None:
    assert ranked.best_stock(arms.ARMS, {"mwms-ring": 2.0, "mwms-auto": 1.5, "ours": 1.0}) == 1.5
    loads = link_loads.of_arms(["mwms-auto", "ours-direct", "alone"], "tensorflow", Shape())
    assert loads["a copy a worker"] == {"mwms-auto": 1.0, "ours-direct": 1.0, "alone": None}
    cell = {"name": "a", "ideal_s": 0.9, "barrier_s": 1.25}
    cell["all_s"] = {"mwms-ring": [2.0], "mwms-auto": [1.5], "ours": [1.0]}
    result = {"rate": "1gbit", "framework": "tensorflow", "cells": [cell]}
    head, _, row, _, ratios = replay.table(result).splitlines()
    assert "| ideal | barrier's ideal | ideal / ours |" in head
    assert row == "| a | 2.000 | 1.500 | 1.000 | 0.900 | 1.250 | 0.900 | 2.000 | 1.500 |"
    assert "the best stock arm 1.500" in ratios


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--arms ddp", "tensorflow has no ddp: want some of alone,mwms-ring"),
        ("--by-name", "--by-name: TensorFlow has no numbers"),
        ("--factors 1=0.5", "links of one rate with --framework tensorflow"),
    ],
)
def test_options_that_tensorflow_lacks_are_refused_before_the_start(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["replay", "--framework", "tensorflow", *line.split()])
    with pytest.raises(SystemExit):
        replay.main()
    assert said in capsys.readouterr().err


def test_layers_that_cannot_be_compiled_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(SystemExit, match="could not be compiled"):
        arms.compiled(tmp_path)


def test_the_cost_of_an_operation_is_over_the_engine_in_the_same_job() -> None:
    rows = [(10.0, 30.0, 12.0, 50.0, 32.0), (20.0, 45.0, 14.0, 61.0, 34.0)]
    rows.append((90.0, 96.0, 16.0, 97.0, 36.0))
    row = operation_cost.summary([dict(zip(operation_cost.WAYS, figures)) for figures in rows])
    assert row == {
        "engine_us": 20.0,
        "operations_us": 45.0,
        "identities_us": 14.0,
        "operations_passed_us": 61.0,
        "identities_passed_us": 34.0,
        "over_engine_us": 20.0,
        "over_engine_passed_us": 40.0,
    }
