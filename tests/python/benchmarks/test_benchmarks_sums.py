"""How benchmarks check the sums that come back to one worker."""

import numpy as np
import pytest

from benchmarks.jobs import sums


class Summed:
    """A key whose sum comes back, unless `lose` says where the one of the round before stays.

    A store that is `shared` leaves what came back in the gradient too, as MXNet's does.
    """

    def __init__(self, size: int, key: int = 5, shared: bool = False) -> None:
        self._shared = shared
        self.grad, self.out = (np.zeros(size, np.float32) for _ in range(2))
        self.tensor = sums.Sums(key, self.grad, self.out)
        self.lose = slice(0, 0)

    def push_pull(self) -> float:
        before = self.out[self.lose].copy()
        self.out[:] = self.grad
        self.out[self.lose] = before
        if self._shared:
            self.grad[:] = self.out
        return 0.5


@pytest.mark.parametrize("size", [1, 256, sums.STRIDE, 3 * sums.STRIDE + 7])
@pytest.mark.parametrize("shared", [False, True])
def test_sums_that_come_back_are_right(size: int, shared: bool) -> None:
    key = Summed(size, shared=shared)
    seconds, aside_s = sums.rounds([key.tensor], key.push_pull, 3)
    assert seconds == [0.5] * 3
    assert aside_s > 0
    sums.last_round([key.tensor], key.push_pull)


@pytest.mark.parametrize(
    "lose", [slice(0, None), slice(sums.STRIDE, 2 * sums.STRIDE), slice(-1, None)]
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_piece_that_is_lost_in_any_round_is_found(lose: slice, shared: bool) -> None:
    key = Summed(3 * sums.STRIDE + 7, shared=shared)
    sums.rounds([key.tensor], key.push_pull, 2)
    key.lose = lose
    with pytest.raises(SystemExit, match="sums of key 5 are wrong in its round 4"):
        sums.rounds([key.tensor], key.push_pull, 1)


@pytest.mark.parametrize("shared", [False, True])
def test_one_number_that_is_stale_is_found_at_the_end(shared: bool) -> None:
    key = Summed(3 * sums.STRIDE, shared=shared)
    sums.rounds([key.tensor], key.push_pull, 2)
    key.lose = slice(100, 101)
    sums.rounds([key.tensor], key.push_pull, 1)
    with pytest.raises(SystemExit, match=f"number 100 is {sums.POISON}"):
        sums.last_round([key.tensor], key.push_pull)


def test_a_sum_of_the_round_before_another_key_or_another_place_is_found() -> None:
    key, other = Summed(4 * sums.STRIDE), Summed(4 * sums.STRIDE, key=6)
    key.tensor.change()
    before = key.grad.copy()
    key.tensor.change()
    other.tensor.change()
    other.tensor.change()
    right = key.grad.copy()
    pieces = right.reshape(4, -1)
    for wrong in (before, other.grad, pieces[[1, 0, 2, 3]].reshape(-1)):
        key.grad[:] = key.out[:] = wrong
        with pytest.raises(SystemExit, match="key 5"):
            key.tensor.check()
    key.out[:] = right
    key.tensor.check()
