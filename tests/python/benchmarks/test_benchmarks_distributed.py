"""Benchmarks of torch.distributed over our backend: arms, collectives, calls that overtake."""

import contextlib
import importlib
from typing import Any, Dict, Iterator, List

import pytest

from benchmarks.lab import ranked
from benchmarks.pytorch import arms, collectives, overtaking
from bytescheduler._advise.models import Step
from bytescheduler._advise.shape import Shape

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from benchmarks.pytorch import layers, replayed, ways  # noqa: E402

STEPS = [Step("first", 4 * 10_000, 0.0, 0.0), Step("second", 40, 0.0, 0.0)]


@contextlib.contextmanager
def group_of(size: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lend a default group: of one rank by Gloo, or one whose other ranks are not there."""
    if size == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        fake = importlib.import_module("torch.testing._internal.distributed.fake_pg")
        dist.init_process_group("fake", store=fake.FakeStore(), rank=rank, world_size=size)
    monkeypatch.setattr(ways, "join", lambda _: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    try:
        yield
    finally:
        monkeypatch.undo()
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "stock", ["ddp-6", "ddp", "ddp-6-bf16", "ddp-bf16", "fsdp", "fsdp-reshard"]
)
def test_each_arm_over_gloo_has_its_like_over_ours(stock: str) -> None:
    ours = arms.ARMS[f"{stock}-backend"]
    assert (ours.backend, ours.servers) == ("bytescheduler", "direct")
    assert ours._replace(backend="gloo", servers="") == arms.ARMS[stock]
    roles = ranked.roles_of(ours, ["x"], ranked.shape_of(ours, Shape()), lambda _: {})
    assert [(role, host) for role, host, _ in roles] == [("worker", 1), ("worker", 2)]
    assert not ours.is_stock
    assert (ours.is_rival, arms.ARMS[stock].is_rival) == (False, True)


def test_ddp_in_float32_alone_is_stock() -> None:
    assert [name for name, arm in arms.ARMS.items() if arm.is_stock] == [
        *("ddp", "ddp-6", "ddp-12", "ddp-50", "ddp-100"),
    ]


@pytest.mark.parametrize(
    ("arm", "is_wrong"), [("fsdp", False), ("fsdp-reshard", False), ("fsdp", True)]
)
def test_sharded_layers_use_the_gradients_of_the_step_before(
    arm: str, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = layers.Model(STEPS)
    optimizer = layers.TakeAverage(model.parameters())
    with group_of(1, 0, monkeypatch), ways.begin(model, optimizer, arms.ARMS[arm], 8) as way:
        steps = replayed.Replayed(model, way)
        steps.step(0)
        if is_wrong:
            weight, _ = layers.of_worker(model.layers[0].weight)
            weight.detach()[::4096] += 1
        steps.step(1, last=True)
        assert model.wrong == int(is_wrong)
        if not is_wrong:
            steps.check(1)


def test_a_shard_is_updated_where_the_whole_weight_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = layers.Model(STEPS)
    optimizer = layers.TakeAverage(model.parameters())
    with group_of(2, 1, monkeypatch), ways.begin(model, optimizer, arms.ARMS["fsdp"], 8):
        weight = model.layers[0].weight
        numbers, before = layers.of_worker(weight)
        assert (len(numbers), before) == (5_000, 5_000)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        assert (before + numbers.nonzero().flatten()).tolist() == [8192]


def test_bfloat16_is_compared_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    for tolerance, wrong in ((layers.EXACT, 1), (layers.HALVED, 0)):
        model = layers.Model(STEPS[:1], tolerance)
        model.expect([1.0], [1.0])
        torch.nn.init.constant_(model.layers[0].weight, 1.0 + 2.0**-8)
        model(torch.zeros(1))
        assert model.wrong == wrong


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # older PyTorch has this name
@pytest.mark.parametrize("name", [name for name in collectives.NAMES if name != "send"])
def test_a_collective_is_made_and_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with group_of(1, 0, monkeypatch):
        result = collectives.Calls(64, dist.group.WORLD).call(name)()
        collectives.check(name, result, 1)
        result[-1] += 1
        with pytest.raises(SystemExit, match=f"{name} of 64 numbers is wrong"):
            collectives.check(name, result, 1)


def test_a_result_of_many_ranks_is_known_in_each_share() -> None:
    collectives.check("all_gather", torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]), 3)
    with pytest.raises(SystemExit, match=r"want 2\.0"):
        collectives.check("all_gather", torch.tensor([1.0, 1.0, 1.0, 2.0, 3.0, 3.0]), 3)
    collectives.check("reduce_scatter", torch.tensor([6.0, 6.0]), 3)
    collectives.check("reduce", None, 3)  # another rank has it


def test_a_collective_is_compared_with_gloo_in_the_same_turn() -> None:
    run = [{"name": "reduce", "bytes": 1024, "ours": [0.001, 0.004, 0.5], "gloo": [0.002] * 3}]
    assert collectives.rows_of([run]) == {
        "reduce 1024": {"ours_ms": 4.0, "gloo_ms": 2.0, "to_gloo": 2.0}
    }


def seen(behind: List[float]) -> Dict[str, Any]:
    return {"idle_s": [0.001], "behind_s": behind, "large_s": [0.5, 0.75]}


def test_small_sums_behind_a_large_one_are_counted() -> None:
    run = overtaking.of_run([seen([0.002] * 98), seen([0.003, 0.004])])
    assert run["counted"] == 100
    assert run["behind"] == pytest.approx({"median_ms": 2.0, "p99_ms": 4.0})
    found = overtaking.summary([run, run, overtaking.of_run([seen([0.01])])])
    assert found["behind"] == {"median_ms": 2.0, "p99_ms": 4.0}
    assert (found["counted"], found["large_s"]) == (201, 0.625)
    with pytest.raises(SystemExit, match="want more of --large"):
        overtaking.of_run([seen([]), seen([])])
