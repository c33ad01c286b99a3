"""The replay with PyTorch: its layers, its arms, and the step that a barrier allows."""

import argparse
import os
import pathlib
import subprocess
import sys
import time
from typing import List, Tuple

import pytest

from benchmarks.jobs import replay
from benchmarks.lab import lab_job, ranked
from benchmarks.pytorch import arms, small_parameters
from bytescheduler._advise.models import Step, ideal_s
from bytescheduler._advise.shape import Shape

torch = pytest.importorskip("torch")
from benchmarks.pytorch import layers  # noqa: E402

STEPS = [Step("first", 4 * 10_000, 0.0, 0.0), Step("second", 40, 0.0, 0.0)]


def trained(model: "layers.Model", optimizer: "layers.TakeAverage") -> None:
    optimizer.zero_grad()
    model(torch.zeros(1)).sum().backward()
    optimizer.step()


def test_layers_use_the_gradients_of_the_step_before() -> None:
    model = layers.Model(STEPS)
    optimizer = layers.TakeAverage(model.parameters())
    model.expect([0.0, 0.0], [1.0, 2.0])
    trained(model, optimizer)
    model.expect([1.0, 2.0], [3.0, 4.0])
    trained(model, optimizer)
    assert model.wrong == 0
    assert [int((weight == 0).sum()) for weight in model.weights] == [9_997, 9]
    for group in optimizer.param_groups:
        group["every"] = 1
    optimizer.step()
    assert [float(weight.detach().min()) for weight in model.weights] == [3.0, 4.0]


def test_a_stale_weight_is_counted() -> None:
    model = layers.Model(STEPS)
    optimizer = layers.TakeAverage(model.parameters())
    model.expect([0.0, 0.0], [1.0, 2.0])
    trained(model, optimizer)
    model.expect([1.0, 7.0], [1.0, 2.0])
    trained(model, optimizer)
    assert model.wrong == 1


def test_time_that_a_layer_overruns_is_taken_from_the_next_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds + 0.25  # a timer that is late

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    clock = layers.Clock()
    for _ in range(8):
        clock.spend(now[0], 1.0)
    assert now[0] == 108.25
    now[0] += 10.0  # a wait for a sum, which is not made good
    clock.spend(now[0], 1.0)
    assert now[0] == 119.25


def test_a_barrier_waits_for_all_sums() -> None:
    steps = [Step("a", 100, 1.0, 2.0), Step("b", 600, 3.0, 4.0)]
    # Forward ends after 4 s, b's backward after 8, its sum after 14, and the sum of a after 15.
    assert ranked.barrier_s(steps, 100.0) == 15.0
    assert ideal_s(steps, 100.0) == 14.0  # the forward of a passes while the sum of b comes
    assert ranked.barrier_s(steps, 1e9) == pytest.approx(10.0)


def test_each_arm_puts_its_processes_where_it_says() -> None:
    def places(arm: str, shape: Shape) -> List[Tuple[str, int]]:
        roles = ranked.roles_of(arms.ARMS[arm], ["x"], shape, lambda _: arms.GLOO)
        return [(role, host) for role, host, _ in roles]

    workers = [("worker", 1), ("worker", 2)]
    assert places("ddp", Shape()) == workers
    assert places("ours-direct", Shape()) == workers
    nodes = [("scheduler", 1), ("server", 3), ("server", 4)]
    assert places("ours", Shape()) == [*nodes, *workers]
    nodes = [("scheduler", 1), ("server", 1), ("server", 2)]
    assert places("ours-together", Shape(2, 2, 2)) == [*nodes, *workers]


def test_workers_of_stock_ddp_are_told_their_places_and_of_no_job_of_ours() -> None:
    roles = ranked.roles_of(arms.ARMS["ddp"], ["printenv"], Shape(), lambda _: arms.GLOO)
    env = {**os.environ, "DMLC_ROLE": "worker", "DMLC_NUM_SERVER": "2"}
    for rank, (_, _, command) in enumerate(roles):
        said = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, check=True, text=True
        ).stdout
        lines = said.splitlines()
        assert {f"RANK={rank}", "WORLD_SIZE=2", "MASTER_ADDR=10.201.0.1"} <= set(lines)
        assert "GLOO_SOCKET_IFNAME=eth0" in lines
        assert not [line for line in lines if line.startswith("DMLC_")]


def test_a_run_counts_its_steps_after_the_first_two(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = [{"seconds": [9.0, 9.0, 0.5, 0.75, 0.5]}] * 2
    monkeypatch.setattr(lab_job, "run_roles", lambda *_: ran)
    args = argparse.Namespace(framework="torch", iterations=5, rate="1gbit", shape=Shape())
    args.timeout, args.library = 1.0, pathlib.Path()
    cell = replay.Cell("vgg16", 8, 0.58, None)
    assert replay.run_arm("ddp", cell, args, pathlib.Path("unused")) == 0.5


def test_the_best_bucket_counts() -> None:
    assert arms.best_ddp({"ddp": 0.5, "ddp-6": 0.25, "ddp-50": None, "ours": 0.125}) == 0.25
    assert arms.best_ddp({"ddp": None, "ours": 0.125}) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--framework torch --arms p3", "torch has no p3: want some of alone,ddp"),
        ("--arms ddp", "mxnet has no ddp: want some of stock"),
        ("--framework torch --by-name", "--by-name: PyTorch has no numbers"),
        ("--framework torch --factors 1=0.5", "--factors: want links of one rate"),
    ],
)
def test_options_that_a_framework_lacks_are_refused_before_the_start(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["replay", *line.split()])
    with pytest.raises(SystemExit):
        replay.main()
    assert said in capsys.readouterr().err


def test_a_step_of_small_parameters_is_compared_with_ddp_in_the_same_turn() -> None:
    run = {mode: [1.0, 2.0, 30.0] for mode in small_parameters.MODES}
    row = small_parameters.summary([{**run, "ddp": [2.0, 4.0, 10.0]}])
    assert (row["ddp_ms"], row["ddp_to_ddp"]) == (4.0, 1.0)
    assert (row["crossing_ms"], row["crossing_to_ddp"]) == (2.0, 0.5)
