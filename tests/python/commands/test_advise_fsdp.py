"""The step of PyTorch's FSDP2 on CPUs, by hand."""

from typing import Tuple

import pytest

from bytescheduler._advise import fsdp, models
from bytescheduler._advise.advice import Cluster
from bytescheduler._advise.ddp import Ring

LAYERS = [models.Step("first", 300, 1, 2), models.Step("second", 100, 1, 2)]


@pytest.mark.parametrize(
    ("workers", "gloo", "ours"),
    [(1, (0, 0), (0, 0)), (2, (0.5, 1), (0.5, 0.5)), (4, (0.75, 1.5), (0.75, 0.75))],
)
def test_a_scatter_of_gloo_carries_twice_as_much_as_ours(
    workers: int, gloo: Tuple[float, float], ours: Tuple[float, float]
) -> None:
    ring = Ring(workers, 100, 0)
    for calls, carried in ((fsdp.over_gloo(ring), gloo), (fsdp.over_ours(ring), ours)):
        assert (calls.gather_s(100), calls.scatter_s(100)) == carried


def test_messages_of_gloo_follow_each_other_and_ours_take_a_round_trip() -> None:
    ring = Ring(4, 1e30, 0.5)
    gloo, ours = fsdp.over_gloo(ring), fsdp.over_ours(ring)
    assert (gloo.gather_s(1), gloo.scatter_s(1)) == pytest.approx((1.5, 3))
    assert (ours.gather_s(1), ours.scatter_s(1)) == pytest.approx((1, 1))
    assert fsdp.over_ours(Ring(1, 100, 0.5)).gather_s(100) == 0


@pytest.mark.parametrize(
    ("workers", "per_host", "carried"),
    [(4, 1, 0.75), (4, 2, 1), (4, 4, 0), (4, 8, 0), (5, 3, 1.2), (8, 2, 1.5)],
)
def test_workers_of_a_host_share_its_link(workers: int, per_host: int, carried: float) -> None:
    calls = fsdp.over_ours(Ring(workers, 100, 0), per_host)
    assert (calls.gather_s(100), calls.scatter_s(100)) == pytest.approx((carried, carried))


def test_no_call_overlaps_with_compute() -> None:
    ring = Ring(2, 100, 0)
    # Six seconds of compute; the gathers of 400 bytes take 2 s, and Gloo's scatters 4 s.
    gloo, ours = fsdp.over_gloo(ring), fsdp.over_ours(ring)
    assert fsdp.step_s(LAYERS, gloo, reshards=False) == pytest.approx(6 + 2 + 4)
    assert fsdp.step_s(LAYERS, gloo, reshards=True) == pytest.approx(6 + 4 + 4)
    assert fsdp.step_s(LAYERS, ours, reshards=False) == pytest.approx(6 + 2 + 2)
    assert fsdp.step_s(LAYERS, ours, reshards=True) == pytest.approx(6 + 4 + 2)


def test_a_layer_without_weights_makes_no_call() -> None:
    calls = fsdp.over_gloo(Ring(2, 100, 1))
    empty = models.Step("empty", 0, 1, 2)
    more_s = fsdp.step_s([*LAYERS, empty], calls, reshards=True)
    assert more_s == pytest.approx(fsdp.step_s(LAYERS, calls, reshards=True) + 3)


def test_workers_of_one_host_load_no_link() -> None:
    ring = Cluster(2, 2, 1e3, 0, per_host=2).ring
    for calls in (fsdp.over_gloo(ring), fsdp.over_ours(ring, 2)):
        assert fsdp.step_s(LAYERS, calls, reshards=True) == 6
    assert ring.sum_s(100) == 0
