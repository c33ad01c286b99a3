"""The step of PyTorch's DDP, by hand."""

from typing import List

import pytest

from bytescheduler._advise import ddp, models
from bytescheduler._advise.advice import Cluster
from bytescheduler._advise.ddp import Ring

MB = 1 << 20


def layers_of(*sizes_mb: float) -> List[models.Step]:
    """Return layers that take a second forward and two backward."""
    return [models.Step(f"layer{i}", int(size * MB), 1, 2) for i, size in enumerate(sizes_mb)]


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([], []),
        ([5], [1]),
        ([5, 5, 5, 5, 5], [2, 2, 1]),  # full with the limit
        ([9, 9, 1], [2, 1]),  # or more
        ([10, 1, 1, 30, 1], [1, 3, 1]),
        ([0, 0], [2]),
    ],
)
def test_a_bucket_is_full_once_it_reaches_its_limit(sizes: List[int], counts: List[int]) -> None:
    assert ddp.buckets(sizes, 10, 10) == counts


def test_the_first_bucket_has_a_limit_of_its_own() -> None:
    assert ddp.buckets([1, 1, 1, 9, 1], 10, 2) == [2, 2, 1]


@pytest.mark.parametrize(("workers", "carried"), [(1, 0), (2, 1), (4, 1.5), (100, 1.98)])
def test_a_ring_carries_all_but_a_share_twice(workers: int, carried: float) -> None:
    assert Ring(workers, 100, 0).sum_s(1000) == pytest.approx(10 * carried)
    assert Ring(workers, 1e30, 0.5).sum_s(1000) == pytest.approx(workers - 1)


def test_sums_follow_each_other_while_backward_goes_on() -> None:
    # Forward ends at 3; the gradients are ready at 5, 7 and 9, the last layer's first.
    layers = layers_of(3, 2, 1)
    assert ddp.step_s(layers, Ring(2, MB, 0), 1) == pytest.approx(12)  # 5..6, 7..9, 9..12
    assert ddp.step_s(layers, Ring(2, MB / 2, 0), 1) == pytest.approx(17)  # 5..7, 7..11, 11..17
    assert ddp.step_s(layers, Ring(2, MB, 0), 6) == pytest.approx(15)  # all together
    assert ddp.step_s(layers, Ring(1, MB, 0), 1) == pytest.approx(9)


def test_ddp_joins_the_first_megabyte_alone_unless_a_script_gives_its_buckets() -> None:
    # In DDP's own buckets the last layer goes alone, and then all the others do.
    layers = layers_of(8, 8, 8, 1)
    assert ddp.step_s(layers, Ring(2, MB, 0)) == pytest.approx(12 + 24)
    assert ddp.step_s(layers, Ring(2, MB, 0), 25) == pytest.approx(12 + 25)


def test_the_best_bucket_is_the_quickest_of_all_that_are_tried() -> None:
    layers, ring = layers_of(*[3] * 20), Ring(2, 10 * MB, 0.01)
    bucket_mb, best_s = ddp.best_bucket(layers, ring)
    assert bucket_mb is not None
    tried = [ddp.step_s(layers, ring, size) for size in ddp.BUCKETS_MB]
    assert best_s == min(tried) == ddp.step_s(layers, ring, bucket_mb)
    assert best_s < ddp.step_s(layers, ring)
    # On a link without a limit no bucket is better than DDP's own.
    assert ddp.best_bucket(layers, Ring(2, 1e30, 0)) == (None, ddp.step_s(layers, Ring(1, 1, 0)))


def test_a_ring_is_as_slow_as_the_slowest_worker() -> None:
    usual = Cluster(2, 2, 1e9, 5e-5)
    slow_worker = usual._replace(factors=((2, 0.5),))
    slow_server = usual._replace(factors=((3, 0.5),))
    assert slow_server.ring == usual.ring
    assert slow_worker.ring == usual._replace(bits_per_s=5e8).ring
