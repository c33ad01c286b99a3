"""Lines of Horovod's examples, and learning rates, in a process alone."""

from typing import Iterator, List

import pytest

pytest.importorskip("tensorflow")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import bytescheduler.tensorflow.keras as bps  # noqa: E402


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    bps.init()
    yield
    bps.shutdown()


def rates_of(callback: tf.keras.callbacks.Callback, first_epoch: int, epochs: int) -> List[float]:
    """Return the rate of each epoch of a training."""
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    optimizer = bps.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.25),
        name="mine",
        backward_passes_per_step=1,
        average_aggregated_gradients=True,
    )
    model.compile(optimizer, "mse", run_eagerly=True)
    watch = tf.keras.callbacks.History()
    ones = np.ones((2, 2), np.float32)
    model.fit(
        *(ones, ones[:, :1]),
        initial_epoch=first_epoch,
        epochs=epochs,
        verbose=0,
        callbacks=[callback, watch],
    )
    return list(watch.history["lr"])


def test_a_training_that_begins_behind_the_warm_up_has_the_full_rate() -> None:
    callback = bps.callbacks.LearningRateWarmupCallback(initial_lr=0.5, warmup_epochs=3, verbose=1)
    assert rates_of(callback, 5, 7) == [0.5, 0.5]
    assert rates_of(callback, 5, 6) == [0.5]


def test_no_warm_up_has_the_full_rate() -> None:
    assert rates_of(bps.callbacks.LearningRateWarmupCallback(0.5, 0), 0, 1) == [0.5]


def test_a_line_tells_of_the_full_rate(capsys: pytest.CaptureFixture[str]) -> None:
    rates_of(bps.callbacks.LearningRateWarmupCallback(0.5, 1, verbose=1), 0, 3)
    assert capsys.readouterr().out == "Epoch 2: the learning rate is 0.5\n"


def test_the_momentum_stands_where_horovod_has_it() -> None:
    warm_up = bps.callbacks.LearningRateWarmupCallback(0.5, 2, True, 7)
    assert (warm_up._warmup, warm_up._steps) == (2, 7)
    schedule = bps.callbacks.LearningRateScheduleCallback(0.5, 0.5, 0, None, False, True, 7)
    assert schedule._steps == 7
    assert rates_of(schedule, 0, 2) == [0.25, 0.25]


def test_a_schedule_changes_rates_from_its_first_epoch_to_before_its_last() -> None:
    schedule = bps.callbacks.LearningRateScheduleCallback
    assert rates_of(schedule(1.0, 0.5, start_epoch=1), 0, 3) == [0.25, 0.5, 0.5]
    halves = schedule(1.0, lambda epoch: 0.5**epoch, start_epoch=1, end_epoch=3)
    assert rates_of(halves, 0, 5) == [0.25, 0.5, 0.25, 0.25, 0.25]
    assert rates_of(schedule(1.0, lambda epoch: 2.0**epoch, 1, 3), 0, 4) == [0.25, 2.0, 4.0, 4.0]
