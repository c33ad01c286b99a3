"""Names, gradients and passes on which workers agree without a word, and refusals."""

from typing import Any, Callable, List

import numpy as np
import tensorflow as tf

import bytescheduler.keras
import bytescheduler.tensorflow as bps
from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine import session


def refusal(call: Callable[[], object], kind: type = UsageError) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was refused")


def places_in_a_function_do_not_depend_on_eager_tensors() -> None:
    for _ in range(5 * bps.rank()):  # they count up the names of branches and gradients
        tf.constant(1.0)
    own = tf.ones([3]) * (bps.rank() + 1.0)

    @tf.function
    def branches(value: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(value) > 0.0:
            value = bps.push_pull(value)
        for _ in tf.range(2):
            value = bps.push_pull(value, average=False)
        return value + bps.broadcast(value * 0.0, 1)

    assert branches(own).numpy().tolist() == [6.0] * 3
    weight = tf.Variable(tf.ones([3]))

    @tf.function
    def inner(value: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(value) > 0.0:
            value = bps.push_pull(value * 2.0)
        return bps.push_pull(value)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(inner(weight) * (bps.rank() + 1.0))
    assert tape.gradient(loss, weight).numpy().tolist() == [3.0] * 3


def a_worker_alone_may_trace_again() -> None:
    @tf.function
    def loss_of(batch: tf.Tensor) -> tf.Tensor:
        return bps.push_pull(tf.reduce_sum(batch))

    for size in (4, 4, 3 + bps.rank()):  # worker 0's last batch is short
        assert loss_of(tf.zeros([size])).numpy() == 0.0


def a_first_gradient_on_a_worker_is_zeros_on_the_rest() -> None:
    used, late, unused = (tf.Variable([1.0], name=f"late{n}") for n in range(3))
    for step in range(4):
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            has_late = step > 1 and bps.rank() == 1
            loss = 2.0 * used + 3.0 * late if has_late else 2.0 * used
        gradients = tape.gradient(loss, [used, late, unused])
        assert gradients[0].numpy().tolist() == [2.0]
        assert gradients[1] is None if step < 2 else gradients[1].numpy().tolist() == [1.5]
        assert gradients[2] is None


def several_passes_refuse_a_sparse_gradient() -> None:
    table = tf.Variable(tf.ones([3, 2]), name="rows")
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(tf.gather(table, [bps.rank()]))
    sparse = tape.gradient(loss, table)

    def maker(**options: bool) -> Any:  # noqa: ANN401
        return bps.DistributedOptimizer(
            tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2, **options
        )

    text = refusal(lambda: maker().apply_gradients([(sparse, table)]))
    assert "gradient of 'rows:0': it is sparse" in text or "gradient of 'rows': it is" in text
    optimizer = maker(sparse_as_dense=True, average_aggregated_gradients=True)
    for _ in range(2):
        optimizer.apply_gradients([(sparse, table)])
    assert table.numpy().tolist() == [[0.5, 0.5], [0.5, 0.5], [1.0, 1.0]]


def a_norm_and_a_decay_are_of_means() -> None:
    weight = tf.Variable([2.0, 0.0], name="clipped")
    optimizer = bps.DistributedOptimizer(
        tf.keras.optimizers.SGD(1.0, global_clipnorm=1.0, weight_decay=0.5)
    )
    optimizer.build([weight])
    own = [6.0, 0.0] if bps.rank() == 0 else [0.0, 8.0]
    optimizer.apply_gradients([(tf.constant(own), weight)])
    # The mean has the norm 5, and half of the weight decays.
    np.testing.assert_allclose(weight.numpy(), [1.0 - 0.6, -0.8], rtol=1e-6)


def means_are_not_summed_again() -> None:
    weight = tf.Variable([1.0])
    optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))

    def step() -> None:
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = 2.0 * weight
        optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight]))

    for call in (step, tf.function(step)):
        assert "wrap either the tape or the optimizer" in refusal(call)


def a_function_of_an_earlier_job_is_refused() -> None:
    function = tf.function(lambda: bps.push_pull(tf.ones([2]), name="earlier"))
    session._NUMBERS[0] -= 1
    function.get_concrete_function()
    session._NUMBERS[0] += 1
    text = refusal(function, tf.errors.FailedPreconditionError)
    assert "'earlier'" in text
    assert "this function was made in an earlier job" in text


def a_text_is_no_average() -> None:
    assert "want True or False" in refusal(lambda: bps.push_pull(tf.ones([2]), bps.Sum))
    indexed = tf.IndexedSlices(tf.ones([1, 2]), [0], [3, 2])
    assert "pass tf.convert_to_tensor(value)" in refusal(lambda: bps.push_pull(indexed))


def a_model_that_one_worker_has_built_is_broadcast() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    if bps.rank() == 0:
        model.build((None, 3))
    model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    start = bytescheduler.keras.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(tf.ones([4, 3]), tf.ones([4, 2]), batch_size=2, verbose=0, callbacks=[start])
    ends = bps.allgather_object([weight.tobytes() for weight in model.get_weights()])
    assert ends[0] == ends[1]


CASES: List[Callable[[], None]] = [
    places_in_a_function_do_not_depend_on_eager_tensors,
    a_worker_alone_may_trace_again,
    a_first_gradient_on_a_worker_is_zeros_on_the_rest,
    several_passes_refuse_a_sparse_gradient,
    a_norm_and_a_decay_are_of_means,
    means_are_not_summed_again,
    a_function_of_an_earlier_job_is_refused,
    a_text_is_no_average,
    a_model_that_one_worker_has_built_is_broadcast,
]
