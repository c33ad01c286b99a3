"""The optimizers of Keras that can step each variable by itself, and how a step looks to them."""

from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf  # noqa: E402

from bytescheduler.tensorflow._crossing.alone import step_alone  # noqa: E402
from bytescheduler.tensorflow._crossing.callbacks import looks_at_batches  # noqa: E402
from bytescheduler.tensorflow._crossing.separable import why_joint  # noqa: E402


@pytest.mark.parametrize(
    "name", ["Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "RMSprop"]
)
def test_an_optimizer_of_keras_steps_each_variable_by_itself(name: str) -> None:
    assert why_joint(getattr(tf.keras.optimizers, name)()) is None


def test_options_of_a_variable_alone_do_not_keep_the_barrier() -> None:
    optimizer = tf.keras.optimizers.SGD(
        0.0, momentum=0.9, nesterov=True, clipvalue=0.1, weight_decay=0.1
    )
    assert why_joint(optimizer) is None
    assert optimizer.iterations.numpy() == 0


def test_averages_of_keras_3_belong_to_all_variables_together() -> None:
    joint = "a step of one variable depends on others"
    is_keras_3 = hasattr(tf.keras.optimizers.SGD, "apply")
    assert why_joint(tf.keras.optimizers.SGD(use_ema=True)) == (joint if is_keras_3 else None)


class CountsSteps(tf.keras.optimizers.SGD):  # type: ignore[misc]
    """Its steps change with the number of its updates."""

    updates = 0

    def update_step(self, gradient: Any, variable: Any, *rate: Any) -> None:  # noqa: ANN401
        type(self).updates += 1
        super().update_step(gradient * float(type(self).updates), variable, *rate)


class CannotCopy(tf.keras.optimizers.SGD):  # type: ignore[misc]
    """It has no configuration."""

    def get_config(self) -> Any:  # noqa: ANN401
        raise ValueError("no configuration")


def test_an_optimizer_with_updates_that_differ_keeps_the_barrier() -> None:
    assert why_joint(CountsSteps()) == "a step of one variable depends on others"
    reason = why_joint(CannotCopy())
    assert reason == "a step of a copy failed (ValueError: no configuration)"


def test_a_step_alone_has_its_own_rate_and_leaves_the_number_of_steps() -> None:
    optimizer = tf.keras.optimizers.SGD(0.5)
    first, second = tf.Variable([1.0]), tf.Variable([1.0])
    optimizer.build([first, second])
    optimizer.iterations.assign(7)
    counter = tf.Variable(0, dtype=optimizer.iterations.dtype)
    step_alone(optimizer, tf.constant([1.0]), first, counter, tf.Variable(0.25))
    assert first.numpy().tolist() == [0.75]
    assert second.numpy().tolist() == [1.0]
    assert optimizer.iterations.numpy() == 7
    assert counter.numpy() == 8
    assert float(optimizer.learning_rate) == 0.5


class Looks(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Look at weights."""


class WaitsForEpochs(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Look at weights."""


def test_callbacks_between_batches_are_known() -> None:
    callbacks = tf.keras.callbacks
    assert looks_at_batches(Looks())
    assert looks_at_batches(callbacks.LambdaCallback(on_train_batch_end=lambda *_: None))
    assert not looks_at_batches(WaitsForEpochs())
    assert not looks_at_batches(callbacks.LambdaCallback(on_epoch_end=lambda *_: None))
    assert not looks_at_batches(callbacks.TerminateOnNaN())
