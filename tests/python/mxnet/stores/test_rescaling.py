"""What a gradient is multiplied by where workers have other batch sizes."""

from typing import List

import mxnet as mx
import pytest

from bytescheduler.mxnet._stores.rescaling import Rescaling


def updater(rescale_grad: object) -> mx.optimizer.Updater:
    return mx.optimizer.get_updater(mx.optimizer.SGD(rescale_grad=rescale_grad))


def rescaling(rank_0: float, *others: float) -> Rescaling:
    """Return that of a worker beside these, which has agreed."""
    found = Rescaling(lambda mine: [rank_0, mine, *others])
    found.agree(updater(1 / 6))
    return found


def test_all_update_with_rank_0s_number_and_push_accordingly() -> None:
    found, mine = rescaling(0.5), updater(0.25)
    assert found.is_known
    assert found.factor(mine) == 0.5
    with found.common(mine):
        assert mine.optimizer.rescale_grad == 0.5
    assert mine.optimizer.rescale_grad == 0.25
    assert found.factor(updater(0.5)) == 1


@pytest.mark.parametrize("number", [1 / 3, 1 / 7, 0.1])
def test_equal_numbers_leave_gradients_as_they_are(number: float) -> None:
    assert rescaling(number).factor(updater(number)) == 1


@pytest.mark.parametrize("others", [(0.5, 0.0), (0.0, 0.5)])
def test_where_a_worker_has_no_number_nothing_is_multiplied(others: "tuple[float, float]") -> None:
    found = rescaling(*others)
    assert not found.is_known
    assert found.factor(updater(0.25)) == 1


@pytest.mark.parametrize("number", [0, -1.0, float("nan"), float("inf"), None])
def test_an_unusable_number_rescales_nothing(number: object) -> None:
    assert rescaling(0.5).factor(updater(number)) == 1
    assert rescaling(0.5).factor(None) == 1
    assert rescaling(0.5).factor(print) == 1


def test_of_many_calls_few_ask_until_the_number_is_known() -> None:
    asked: List[float] = []

    def share(number: float) -> List[float]:
        asked.append(number)
        return [number, number]

    found = Rescaling(share)
    for _ in range(9):
        found.agree(None)
    assert asked == [0, 0, 0, 0]  # by calls 1, 2, 4 and 8
    for _ in range(9):
        found.agree(updater(0.5))
    assert asked == [0, 0, 0, 0, 0.5]  # by call 16
    found.agree(updater(0.25), again=True)
    assert found.factor(updater(0.5)) == 2


def test_a_loss_scale_that_all_change_is_no_other_batch_size() -> None:
    weight = mx.gluon.Parameter("weight", shape=(1,))
    weight.initialize()
    trainer = mx.gluon.Trainer([weight], "sgd", kvstore=None)
    mine = mx.optimizer.get_updater(trainer._optimizer)
    trainer._scale = 2.0**-16
    trainer._optimizer.rescale_grad = trainer._scale / 6
    found = Rescaling(lambda number: [number, number])
    found.agree(mine)
    trainer._scale = 2.0**-15
    trainer._optimizer.rescale_grad = trainer._scale / 6
    assert found.factor(mine) == 1
    trainer._optimizer.rescale_grad = trainer._scale / 3
    assert found.factor(mine) == 2
