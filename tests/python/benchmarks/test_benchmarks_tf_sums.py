"""The sums that the replay of steps with TensorFlow compares at its end."""

from typing import List

import pytest

pytest.importorskip("tensorflow")

import numpy as np  # noqa: E402

from benchmarks.tensorflow import layers, replayed  # noqa: E402

WORKERS, LAST = 2, 5


class FakeModel:
    """Weights of two layers, with the sums of the last step."""

    def __init__(self) -> None:
        places = np.arange(3 * layers.PERIOD) % layers.PERIOD
        ranks = sum(range(WORKERS))
        self.weights = [
            (WORKERS * (LAST + layer + places) + ranks).astype(np.float32) for layer in range(2)
        ]

    def get_weights(self) -> List[np.ndarray]:
        return self.weights


def test_the_sums_of_the_last_step_are_right() -> None:
    replayed._check(FakeModel(), LAST, WORKERS)


def test_a_part_of_a_sum_at_another_place_is_found() -> None:
    model = FakeModel()
    part = model.weights[1][512:1024].copy()
    model.weights[1][1024:1536] = part
    with pytest.raises(AssertionError, match="a sum of layer 1 is wrong"):
        replayed._check(model, LAST, WORKERS)
