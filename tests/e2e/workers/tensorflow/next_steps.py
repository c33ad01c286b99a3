"""Models whose steps begin before the means of the step before are there."""

import os
import pathlib
import queue
import shutil
import signal
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import same_weights
import tensorflow as tf

import bytescheduler.keras as bps
import bytescheduler.tensorflow as bps_tensorflow
from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._crossing import model as crossing_model
from bytescheduler.tensorflow._gradients.optimizer import steps_of
from bytescheduler.tensorflow._library.loading import held

_LONG_S = 60.0
_SHORT_S = 0.3
_ROWS = 64
Callbacks = Callable[[], List[Any]]


class Meeting:
    """A file that all workers see."""

    def __init__(self) -> None:
        self._folder = bps_tensorflow.broadcast_object(tempfile.mkdtemp(), 0)
        self._file = pathlib.Path(self._folder, "open")

    def open(self) -> None:
        self._file.touch()

    def wait(self) -> None:
        end = time.monotonic() + _LONG_S
        while not self._file.exists():
            if time.monotonic() > end:
                raise TimeoutError("the first layer of the next step did not run")
            time.sleep(0.01)

    def close(self) -> None:
        bps_tensorflow.allgather_object(None)
        if bps.rank() == 0:
            shutil.rmtree(self._folder)


def through(call: Callable[[np.ndarray], np.ndarray], value: tf.Tensor) -> tf.Tensor:
    """Return `value` once `call` has had it; nothing else is ordered by that."""
    passed = tf.numpy_function(call, [value], tf.float32, stateful=False)
    return tf.ensure_shape(passed, value.shape)


class Noting(tf.keras.layers.Layer):  # type: ignore[misc]
    """A layer that calls `ran` in the forward pass, and `gets` with the gradient of its weights."""

    def __init__(self, ran: Callable[[], None], gets: Callable[[], None]) -> None:
        super().__init__()
        self._calls = (ran, gets)

    def build(self, shape: Any) -> None:  # noqa: ANN401
        self.kernel = self.add_weight(name="kernel", shape=(shape[-1], 2))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        ran, gets = (self._passing(call) for call in self._calls)

        @tf.custom_gradient
        def weights(value: tf.Tensor) -> Any:  # noqa: ANN401
            return tf.identity(value), lambda gradient: through(gets, gradient)

        @tf.custom_gradient
        def noted(value: tf.Tensor) -> Any:  # noqa: ANN401
            return through(ran, value), lambda gradient: gradient

        return noted(inputs @ weights(tf.convert_to_tensor(self.kernel)))

    @staticmethod
    def _passing(call: Callable[[], None]) -> Callable[[np.ndarray], np.ndarray]:
        def passing(value: np.ndarray) -> np.ndarray:
            call()
            return value.copy()  # not the memory of a tensor of TensorFlow

        return passing


def a_layer_runs_while_a_later_one_waits_for_its_mean() -> None:
    meeting = Meeting()
    ran: Dict[str, int] = {"first": 0, "last": 0}
    found: List[int] = []

    def first() -> None:
        ran["first"] += 1
        if bps.rank() == 0 and ran["first"] == 2:
            time.sleep(_SHORT_S)  # the last layer could run now: its inputs are there
            found.append(ran["last"])
            meeting.open()

    def last() -> None:
        ran["last"] += 1

    def hold() -> None:
        if bps.rank() == 1:
            meeting.wait()

    inputs = tf.keras.Input((3,))
    layers = [Noting(first, lambda: None)(inputs), Noting(last, hold)(inputs)]
    model = tf.keras.Model(inputs, tf.keras.layers.Add()(layers))
    model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    bps_tensorflow.broadcast_variables(model.variables, 0)
    bps.cross_barrier(model)
    model.fit(np.ones((12, 3)), np.zeros((12, 2)), batch_size=4, verbose=0)
    assert ran == {"first": 3, "last": 3}
    assert found == ([1] if bps.rank() == 0 else [])
    ends = bps_tensorflow.allgather_object([weight.tobytes() for weight in model.get_weights()])
    assert ends[0] == ends[1]
    meeting.close()


def sums_hold_no_thread_of_tensorflow() -> None:
    meeting = Meeting()
    # More sums than TensorFlow has threads wait for worker 1, which waits for the first sum.
    early, *late = (tf.Variable(1.0) for _ in range(1 + 2 * (os.cpu_count() or 1)))

    def hold(value: np.ndarray) -> np.ndarray:
        if bps.rank() == 1:
            meeting.wait()
        return value.copy()

    def arrive(value: np.ndarray) -> np.ndarray:
        if bps.rank() == 0:
            meeting.open()
        return value.copy()

    @tf.function
    def step(number: tf.Tensor) -> List[tf.Tensor]:
        tape = bps_tensorflow.DistributedGradientTape(tf.GradientTape())
        with tape:
            held_back = through(hold, number)
            loss = tf.add_n([early * number, *(variable * held_back for variable in late)])
        first, *rest = tape.gradient(loss, [early, *late])
        return [through(arrive, first), *rest]

    assert {float(gradient) for gradient in step(tf.constant(3.0))} == {3.0}
    meeting.close()


def data() -> Any:  # noqa: ANN401
    rng = np.random.default_rng(bps.rank())
    images = rng.normal(size=(_ROWS, 6)).astype(np.float32)
    return images, rng.integers(0, 3, size=_ROWS)


def built(optimizer: Any, *, crosses: bool, **compile_options: Any) -> Any:  # noqa: ANN401
    tf.keras.utils.set_random_seed(3)
    norm = tf.keras.constraints.MaxNorm(1.0)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, "tanh", kernel_constraint=norm, input_shape=(6,)),
            tf.keras.layers.Dense(8, "tanh"),
            tf.keras.layers.Dense(3),
        ]
    )
    model.compile(optimizer, same_weights.LOSS, **compile_options)
    if crosses:
        bps.cross_barrier(model)
        assert "train_step" in vars(model)
    return model


def state_of(model: Any) -> List[bytes]:  # noqa: ANN401
    state = model.optimizer.variables
    variables = [*model.variables, *(state() if callable(state) else state)]
    return [tf.convert_to_tensor(variable).numpy().tobytes() for variable in variables]


def assert_same(
    maker: Callable[[], Any],
    callbacks: Optional[Callbacks] = None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Train with and without the barrier; weights, states and losses are equal, bit by bit."""
    passes = options.pop("backward_passes_per_step", 1)
    images, labels = data()
    ends = []
    for crosses in (False, True):
        optimizer = bps.DistributedOptimizer(maker(), backward_passes_per_step=passes)
        model = built(optimizer, crosses=crosses, **options)
        history = model.fit(
            *(images, labels),
            batch_size=8,
            epochs=2,
            verbose=0,
            shuffle=False,
            validation_data=(images[:8], labels[:8]),
            callbacks=[] if callbacks is None else callbacks(),
        )
        assert held() == 0
        ends.append((state_of(model), history.history))
    assert ends[0] == ends[1]


def all_that_an_optimizer_does_to_a_variable_is_done_later() -> None:
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.7, staircase=True)
    options = {"nesterov": True, "clipnorm": 0.5, "weight_decay": 0.01}
    # Keras 3 averages weights of all variables together.
    options["use_ema"] = not hasattr(tf.keras.optimizers.SGD, "apply")
    assert_same(lambda: tf.keras.optimizers.SGD(schedule, momentum=0.9, **options))


def a_step_has_the_rate_of_its_own_batch() -> None:
    assert_same(
        lambda: tf.keras.optimizers.Adam(0.02, amsgrad=True),
        lambda: [
            bps.callbacks.BroadcastGlobalVariablesCallback(0),
            bps.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=2),
        ],
    )


def several_steps_of_a_call_and_several_passes_cross() -> None:
    assert_same(
        lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
        steps_per_execution=2,
        backward_passes_per_step=2,
    )


def saved(model: Any) -> List[np.ndarray]:  # noqa: ANN401
    """Return the weights that a saved model has."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.keras")
        weights: List[np.ndarray] = tf.keras.models.load_model(f"{folder}/m.keras").get_weights()
    return weights


def saved_weights(model: Any) -> List[np.ndarray]:  # noqa: ANN401
    """Return the weights that a file of weights has."""
    other = built(tf.keras.optimizers.SGD(), crosses=False)
    with tempfile.TemporaryDirectory() as folder:
        model.save_weights(f"{folder}/m.weights.h5")
        other.load_weights(f"{folder}/m.weights.h5")
    weights: List[np.ndarray] = other.get_weights()
    return weights


def all_who_look_at_weights_see_all_updates() -> None:
    lines: List[str] = []
    crossing_model.say = lines.append
    seen: List[List[List[bytes]]] = []

    class Look(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            seen[-1].append(state_of(self.model))

    class LookAtEnd(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            seen[-1].append(state_of(self.model))

        def on_train_end(self, logs: object = None) -> None:
            seen[-1].append(state_of(self.model))

    class Unaware(Look):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            waiting.append(held())

    images, labels = data()
    waiting = []
    for crosses in (False, True):
        seen.append([])
        optimizer = bps.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))
        model = built(optimizer, crosses=crosses)
        one = (images[:8], labels[:8])
        model.train_on_batch(*one)
        seen[-1].append(state_of(model))
        for callback in (Look(), LookAtEnd()):
            model.fit(images, labels, batch_size=16, verbose=0, callbacks=[callback])
        for look in (lambda looked_at: looked_at.get_weights(), saved, saved_weights):
            if crosses:  # as an error in `fit` leaves it
                model.train_function(iter(tf.data.Dataset.from_tensors(one)))
                waiting.append(held())
            else:
                model.train_on_batch(*one)
            seen[-1].append([weight.tobytes() for weight in look(model)])
            seen[-1].append(state_of(model))
    unaware = Unaware()
    model.compile(model.optimizer, same_weights.LOSS)
    bps.cross_barrier(model, needs_no_weights=[unaware])  # callbacks of a second call count too
    model.fit(*one, batch_size=8, verbose=0, callbacks=[unaware])
    assert seen[0] == seen[1]
    assert waiting == [6, 6, 6, 6]
    said = [line for line in lines if "Look is called between batches" in line]
    assert len(said) == (1 if bps.rank() == 0 else 0), lines
    assert len(lines) == len(said)


class GlobalNorm(tf.keras.optimizers.SGD):  # type: ignore[misc]
    """Steps by gradients over the norm of all of them."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        pairs = list(grads_and_vars)
        norm = tf.linalg.global_norm([gradient for gradient, _ in pairs])
        scaled = [(gradient / norm, variable) for gradient, variable in pairs]
        return super().apply_gradients(scaled, *args, **kwargs)


def an_optimizer_that_steps_all_together_keeps_the_barrier() -> None:
    lines: List[str] = []
    crossing_model.say = lines.append
    optimizers = tf.keras.optimizers
    cases = {
        "global_clipnorm needs all gradients": lambda: optimizers.SGD(global_clipnorm=1.0),
        "ema_overwrite_frequency": lambda: optimizers.SGD(use_ema=True, ema_overwrite_frequency=2),
        "where any gradient is not finite": lambda: tf.keras.mixed_precision.LossScaleOptimizer(
            optimizers.SGD()
        ),
        "a step of one variable depends on others": GlobalNorm,
    }
    if hasattr(optimizers.legacy.SGD, "apply_gradients"):  # Keras 2
        cases["it has no update_step"] = optimizers.legacy.SGD
    for reason, maker in cases.items():
        model = built(bps.DistributedOptimizer(maker()), crosses=False)
        bps.cross_barrier(model)
        assert "train_step" not in vars(model)
        if bps.rank() == 0:
            assert "cannot cross the barrier: " in lines[-1]
            assert reason in lines[-1]
            assert lines[-1].endswith("each step waits for all sums")
    model = built(bps.DistributedOptimizer(optimizers.SGD()), crosses=False, run_eagerly=True)
    bps.cross_barrier(model)
    assert len(lines) == (len(cases) + 1 if bps.rank() == 0 else 0)


def mistakes_about_crossing_are_told() -> None:
    def refusal(call: Callable[[], object]) -> str:
        try:
            call()
        except UsageError as error:
            return str(error)
        raise AssertionError("nothing was refused")

    plain = same_weights.model_of(0)
    assert "compile the model before" in refusal(lambda: bps.cross_barrier(plain))
    plain.compile(tf.keras.optimizers.SGD(), same_weights.LOSS)
    assert "compile the model before" in refusal(lambda: bps.cross_barrier(plain))
    unbuilt = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    unbuilt.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD()), "mse")
    assert "call model.build(input_shape) before" in refusal(lambda: bps.cross_barrier(unbuilt))
    model = built(bps.DistributedOptimizer(tf.keras.optimizers.SGD()), crosses=True)
    assert "crosses the barrier already" in refusal(lambda: bps.cross_barrier(model))
    model.compile(model.optimizer, same_weights.LOSS)
    bps.cross_barrier(model)

    class Twice(tf.keras.Model):  # type: ignore[misc]
        def train_step(self, batch: Any) -> Dict[str, tf.Tensor]:  # noqa: ANN401
            for _ in range(2):
                super().train_step(batch)
            return {}

    inputs = tf.keras.Input((6,))
    twice = Twice(inputs, tf.keras.layers.Dense(3)(inputs))
    twice.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD()), same_weights.LOSS)
    bps.cross_barrier(twice)
    assert "a step applies a gradient of" in refusal(lambda: twice.fit(*data(), verbose=0))


def ctrl_c_ends_a_wait_and_keeps_the_mean() -> None:
    meeting = Meeting()
    model = built(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), crosses=True)
    model.train_on_batch(*data())  # all know the variables from then on
    before = state_of(model)

    def step() -> None:
        model.train_function(iter(tf.data.Dataset.from_tensors(data())))

    if bps.rank() == 0:
        step()
        interrupt = threading.Timer(_SHORT_S, os.kill, [os.getpid(), signal.SIGINT])
        interrupt.start()
        try:
            model.get_weights()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the wait had no end")
        interrupt.join()
        assert state_of(model) == before
        meeting.open()
    else:
        meeting.wait()
        step()
    model.get_weights()
    ends = bps_tensorflow.allgather_object(state_of(model))
    assert ends[0] == ends[1]
    assert ends[0] != before
    meeting.close()


def a_second_wait_for_a_sum_is_an_error() -> None:
    meeting = Meeting()
    model = built(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), crosses=True)
    model.train_on_batch(*data())
    variable = model.trainable_variables[0]
    means = steps_of(model.optimizer).means
    ends: queue.Queue[Any] = queue.Queue()

    def wait() -> None:
        try:
            ends.put(means.awaited(variable)[1])
        except tf.errors.FailedPreconditionError as error:
            ends.put(error.message)

    if bps.rank() == 1:
        meeting.wait()
    model.train_function(iter(tf.data.Dataset.from_tensors(data())))
    threads = [threading.Thread(target=wait) for _ in range(2 if bps.rank() == 0 else 1)]
    for thread in threads:
        thread.start()
    if bps.rank() == 0:
        message = ends.get(timeout=_LONG_S)
        assert "kernel" in message
        assert "another thread waits for its sum; call methods of the model from one" in message
        meeting.open()
    assert bool(ends.get(timeout=_LONG_S))
    for thread in threads:
        thread.join()
    model.get_weights()
    meeting.close()


STEPS: List[Callable[[], None]] = [
    sums_hold_no_thread_of_tensorflow,
    a_layer_runs_while_a_later_one_waits_for_its_mean,
    all_that_an_optimizer_does_to_a_variable_is_done_later,
    a_step_has_the_rate_of_its_own_batch,
    several_steps_of_a_call_and_several_passes_cross,
]
LOOKS: List[Callable[[], None]] = [
    all_who_look_at_weights_see_all_updates,
    an_optimizer_that_steps_all_together_keeps_the_barrier,
    mistakes_about_crossing_are_told,
    ctrl_c_ends_a_wait_and_keeps_the_mean,
    a_second_wait_for_a_sum_is_an_error,
]
