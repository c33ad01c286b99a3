"""Functions of bytescheduler.tensorflow in a job of two workers."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Callable, Dict, List, Set

import numpy as np
import tensorflow as tf

import bytescheduler.keras
import bytescheduler.tensorflow as bps
from bytescheduler.errors import ConfigError, UsageError
from bytescheduler.tensorflow._job.job import current
from bytescheduler.tensorflow._sums.call import Target, push_pull

WITHOUT_THIS_PACKAGE = """
import sys
sys.modules["bytescheduler"] = None  # as where it is not installed
import numpy, tensorflow
for file in sys.argv[1:]:
    model = tensorflow.keras.models.load_model(file)
    one = numpy.ones((1, 2), numpy.float32)
    print(model.predict(one, verbose=0).tobytes().hex())
"""


def refusal(call: Callable[[], object], kind: type = UsageError) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was refused")


def imports_no_other_framework() -> None:
    assert not {"torch", "mxnet"} & set(sys.modules)


def both_workers_are_on_one_host() -> None:
    assert (bps.local_rank(), bps.local_size(), bps.size()) == (bps.rank(), 2, 2)


def a_sum_and_a_mean_in_a_function_and_eagerly() -> None:
    own = tf.constant([1.0, 2.0]) * (bps.rank() + 1)

    def both(value: tf.Tensor) -> List[tf.Tensor]:
        return [bps.push_pull(value), bps.allreduce(value, op=bps.Sum)]

    for call in (both, tf.function(both)):
        for _ in range(2):
            mean, total = call(own)
            assert mean.numpy().tolist() == [1.5, 3.0]
            assert total.numpy().tolist() == [3.0, 6.0]
    integers = bps.push_pull(tf.constant([1, 2]), average=False, name="integers")
    assert integers.numpy().tolist() == [2, 4]
    halves = bps.push_pull(own, compression=bps.Compression.fp16)
    assert halves.dtype == tf.float32
    assert halves.numpy().tolist() == [1.5, 3.0]
    assert bps.push_pull(tf.zeros([0, 3])).shape == (0, 3)
    assert float(bps.push_pull(2.0 * bps.rank())) == 1.0


def a_sum_has_a_gradient() -> None:
    weight = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(bps.push_pull(weight * 2.0, name="loss") * (bps.rank() + 1.0))
    # The mean over workers of d(loss)/d(mean), which is 1 on worker 0 and 2 on worker 1.
    assert tape.gradient(loss, weight).numpy().tolist() == [3.0, 3.0]


def before(operation: tf.Operation) -> Set[tf.Operation]:
    """Return the operations that end before one begins."""
    found: Set[tf.Operation] = set()
    new = [operation]
    while new:
        latest = new.pop()
        earlier = {*latest.control_inputs, *(tensor.op for tensor in latest.inputs)} - found
        found |= earlier
        new += earlier
    return found


def operations_of_variables_have_no_order() -> None:
    variables = [tf.Variable(tf.ones([4])) for _ in range(3)]

    @tf.function
    def step() -> List[tf.Tensor]:
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
        return tape.gradient(loss, variables)

    optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.25))
    optimizer.build(variables)

    @tf.function
    def update() -> None:
        gradients = [tf.ones([4]) * (1.0 + bps.rank()) for _ in variables]
        optimizer.apply_gradients(zip(gradients, variables))

    for function in (step, update):
        graph = function.get_concrete_function().graph
        ours = [op for op in graph.get_operations() if op.type == "BsPushPull"]
        assert len(ours) == 3
        for op in ours:
            assert not before(op) & set(ours)
            assert sum(tensor.dtype == tf.resource for tensor in op.inputs) == 1
    assert [g.numpy().tolist() for g in step()] == [[2.0] * 4] * 3
    update()
    assert [variable.numpy().tolist() for variable in variables] == [[0.625] * 4] * 3


def a_result_that_is_not_used_is_still_summed_in_the_order_of_the_program() -> None:
    @tf.function
    def step() -> tf.Tensor:
        bps.push_pull(tf.ones([3]), name="not used")
        return bps.push_pull(tf.ones([3]), name="used")

    graph = step.get_concrete_function().graph
    first, second = [op for op in graph.get_operations() if op.type == "BsPushPull"]
    assert first in second.control_inputs
    step()
    # The other worker sums it too, so a next sum of that name pairs with its second.
    assert bps.push_pull(tf.ones([3]), name="not used").numpy().tolist() == [1.0] * 3


def a_missing_gradient_is_zeros_or_stays_none() -> None:
    used, rare, unused = (tf.Variable([float(n)], name=f"v{n}") for n in (1, 2, 3))

    def step() -> List[Any]:
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = 2.0 * used if bps.rank() == 0 else 2.0 * used + 3.0 * rare
        return tape.gradient(loss, [used, rare, unused])

    for call in (step, tf.function(step)):
        for _ in range(2):
            gradients = call()
            assert gradients[0].numpy().tolist() == [2.0]
            assert gradients[1].numpy().tolist() == [1.5]
            assert gradients[2] is None


def a_sparse_gradient_is_an_error_or_dense() -> None:
    table = tf.Variable(tf.ones([3, 2]), name="table")

    def gradient(**options: bool) -> tf.Tensor:
        tape = bps.DistributedGradientTape(tf.GradientTape(), **options)
        with tape:
            loss = tf.reduce_sum(tf.gather(table, [bps.rank()]))
        return tape.gradient(loss, table)

    assert "gradient of 'table:0': it is sparse (IndexedSlices)" in refusal(gradient)
    dense = gradient(sparse_as_dense=True)
    assert dense.numpy().tolist() == [[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]]


def values_of_another_worker_come_bit_for_bit() -> None:
    strange = tf.constant([np.nan, -0.0, 1e-45, np.inf], tf.float32)
    own = strange if bps.rank() == 1 else tf.zeros([4])
    for call in (bps.broadcast, tf.function(bps.broadcast)):
        for _ in range(2):
            got = call(own, 1)
            assert got.numpy().tobytes() == strange.numpy().tobytes()
    flags = tf.Variable([bps.rank() == 0, True])
    numbers = [tf.Variable(bps.rank(), dtype=tf.int64), tf.Variable([0.5 * bps.rank()] * 5)]
    bps.broadcast_variables([flags, *numbers], 0)
    assert flags.numpy().tolist() == [True, True]
    assert numbers[0].numpy() == 0
    assert numbers[1].numpy().tolist() == [0.0] * 5
    assert bps.broadcast_object({"epoch": bps.rank()}, 1) == {"epoch": 1}
    assert bps.allgather_object(bps.rank()) == [0, 1]


def several_passes_make_one_step() -> None:
    weight = tf.Variable([1.0])
    optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    optimizer.build([weight])

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        optimizer.apply_gradients([(gradient, weight)])

    for number in range(4):
        step(tf.constant([1.0 + bps.rank()]))
        # A sum of two gradients, which are 1.5 in the mean.
        assert weight.numpy().tolist() == [1.0 - 3.0 * ((number + 1) // 2)]


def all_workers_skip_the_step_that_overflows() -> None:
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        tf.keras.utils.set_random_seed(0)
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
        optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
        model.compile(optimizer, "mse")
        expected = np.concatenate([model.get_weights()[0], [[0.0, 0.0]]])
        both = [np.random.default_rng(rank).normal(0, 0.1, size=(20, 4, 3)) for rank in range(2)]
        data = both[bps.rank()].astype(np.float32)
        if bps.rank() == 1:
            data[5] = 3e4
        slices = tf.data.Dataset.from_tensor_slices((data, np.ones((20, 4, 2), np.float32)))
        model.fit(slices, verbose=0)
        is_keras_3 = hasattr(optimizer, "dynamic_scale")
        scale = float(optimizer.dynamic_scale if is_keras_3 else optimizer.loss_scale)
        ends = bps.allgather_object(([w.tobytes() for w in model.get_weights()], scale))
        assert ends[0] == ends[1]
        assert scale == 2**14  # it was halved once
        for step in [*range(5), *range(6, 20)]:
            inputs = np.concatenate([worker[step] for worker in both])
            inputs = np.concatenate([inputs, np.ones((8, 1))], axis=1)
            expected -= 0.01 * inputs.T @ (inputs @ expected - 1.0) / 8
        np.testing.assert_allclose(np.vstack(model.get_weights()), expected, atol=5e-4)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def metrics_are_means_and_rates_rise() -> None:
    rates: List[float] = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            rates.append(round(float(self.model.optimizer.learning_rate), 4))

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            ends.append(dict(logs))  # type: ignore[call-overload]

    ends: List[Dict[str, float]] = []
    plain: List[float] = []
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    ours = bytescheduler.keras.callbacks
    model.fit(
        np.full((8, 2), 1.0 + bps.rank()),
        np.zeros((8, 1)),
        batch_size=4,
        epochs=3,
        verbose=0,
        callbacks=[
            ours.BroadcastGlobalVariablesCallback(0),
            ours.LearningRateWarmupCallback(0.1, warmup_epochs=2),
            tf.keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: plain.append(float(logs["loss"]))
            ),
            ours.MetricAverageCallback(),
            Watch(),
        ],
    )
    assert rates == [0.05, 0.0625, 0.075, 0.0875, 0.1, 0.1]
    both = bps.allgather_object([end["loss"] for end in ends])
    assert both[0] == both[1]
    first, second = bps.allgather_object(plain)  # of workers with other data
    assert first != second
    assert both[0] == [(one + other) / 2 for one, other in zip(first, second)]


def a_model_is_saved_as_if_nothing_had_wrapped_it() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    optimizer = tf.keras.optimizers.SGD(0.1)
    wrapped = bps.DistributedOptimizer(optimizer)
    assert wrapped is optimizer
    assert type(wrapped) is tf.keras.optimizers.SGD
    model.compile(wrapped, tf.keras.losses.MeanSquaredError())
    with tempfile.TemporaryDirectory() as folder:
        for file in (f"{folder}/m.keras", f"{folder}/m.h5"):
            model.save(file)
            plain = tf.keras.models.load_model(file)
            assert "apply_gradients" not in vars(plain.optimizer)
            wrong = {"op": "max"}
            assert "op='max': want Average or Sum" in refusal(
                lambda file=file, wrong=wrong: bytescheduler.keras.load_model(
                    file, optimizer_options=wrong
                )
            )
            again = bytescheduler.keras.load_model(file)
            # Keras 3 itself trains no model of an HDF5 file.
            if file.endswith(".keras") or not hasattr(again.optimizer, "apply"):
                first_bias = again.get_weights()[1]
                own = [tf.zeros([2, 1]), tf.constant([4.0 * bps.rank()])]
                again.optimizer.apply_gradients(zip(own, again.trainable_variables))
                np.testing.assert_allclose(again.get_weights()[1], first_bias - 0.2, rtol=1e-6)
            one = np.ones((1, 2), np.float32)
            predicted = model.predict(one, verbose=0)
            np.testing.assert_array_equal(plain.predict(one, verbose=0), predicted)
        if bps.rank() == 0:
            files = [f"{folder}/m.keras", f"{folder}/m.h5"]
            done = subprocess.run(
                [sys.executable, "-c", WITHOUT_THIS_PACKAGE, *files],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            assert done.stdout.split()[-2:] == [predicted.tobytes().hex()] * 2


def mistakes_are_told_with_their_cure() -> None:
    numbers = tf.constant([1, 2])
    assert "the mean of int32 is no whole number" in refusal(lambda: bps.push_pull(numbers))
    assert "does not travel in a tensor" in refusal(lambda: bps.push_pull(tf.constant("a")))
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    assert "ragged; pass value.to_tensor()" in refusal(lambda: bps.push_pull(ragged))
    sparse = tf.sparse.from_dense([[1.0]])
    assert "tf.sparse.to_dense(value)" in refusal(lambda: bps.push_pull(sparse))
    assert "root_rank 2: want 0 to 1" in refusal(lambda: bps.broadcast(numbers, 2), ConfigError)
    assert "op='max': want Average or Sum" in refusal(lambda: bps.allreduce(1.0, op="max"))
    optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD())
    assert "wrapped already" in refusal(lambda: bps.DistributedOptimizer(optimizer))
    tape = bps.DistributedGradientTape(tf.GradientTape())
    assert "this tape is wrapped already; wrap it once" in refusal(
        lambda: bps.DistributedGradientTape(tape)
    )
    assert "want an optimizer of Keras" in refusal(lambda: bps.DistributedOptimizer(1))
    scaler = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    weight = tf.Variable([1.0])
    assert "wrap the other way round" in refusal(
        lambda: scaler.apply_gradients([(tf.constant([1.0]), weight)])
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def step(value: tf.Tensor) -> tf.Tensor:
        return bps.push_pull(value)

    compiled = tf.function(bps.push_pull, jit_compile=True)
    assert "pass jit_compile=False" in refusal(lambda: compiled(tf.ones([2])))
    assert "tf.ensure_shape" in refusal(lambda: step(tf.ones([2])))
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD()), "mse", jit_compile=True)
    fit = model.fit
    assert "pass jit_compile=False" in refusal(
        lambda: fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0)
    )
    bps.push_pull(tf.ones([2]), name="two")
    assert "before it had 2 of float32" in refusal(lambda: bps.push_pull(tf.ones([3]), name="two"))


def workers_that_disagree_learn_the_name() -> None:
    own_shape, own_dtype = (2 + bps.rank(),), tf.float64 if bps.rank() else tf.float32
    for name, shape, dtype, theirs in (
        ("shape", own_shape, tf.float32, "float32 of shape (3,)"),
        ("dtype", (2,), own_dtype, "float64 of shape (2,)"),
    ):
        other = tf.Variable(tf.ones(shape, dtype), name=name)
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = tf.reduce_sum(other)
        text = refusal(
            lambda tape=tape, loss=loss, other=other: tape.gradient(loss, other), ConfigError
        )
        assert f"gradient of '{name}:0': it is float32 of shape (2,) on worker 0" in text
        assert f"{theirs} on worker 1; build the same model" in text


def a_known_key_with_another_size_is_an_error_of_the_operation() -> None:
    job = current().get()
    assert job.variables is not None
    weight = tf.Variable(tf.ones([2]), name="sized")
    tape = bps.DistributedGradientTape(tf.GradientTape())
    with tape:
        loss = tf.reduce_sum(weight)
    tape.gradient(loss, [weight])
    name = job.variables.name_of(weight)
    target = Target(job.variables.key_of(name), name, weight)
    text = refusal(lambda: push_pull([tf.ones([3])], [target], 2), tf.errors.InvalidArgumentError)
    assert f"key='{name}': 12 bytes in and 12 bytes out, it was broadcast with 8 bytes" in text


def ctrl_c_ends_a_wait() -> None:
    own = tf.Variable(tf.ones([3]), name="waits")
    function = tf.function(lambda: bps.push_pull(own, name="waits"))
    function()
    if bps.rank() == 0:
        interrupt = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        interrupt.start()
        try:
            function()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the wait had no end")
        interrupt.join()
    # The other worker comes late, and the sum ends for it.
    assert bps.allgather_object("goes on") == ["goes on"] * 2
    if bps.rank() == 1:
        assert function().numpy().tolist() == [1.0] * 3
    assert bps.push_pull(own, name="waits").numpy().tolist() == [1.0] * 3


TRACED: List[Any] = []


def trace_for_the_time_after_shutdown() -> None:
    function = tf.function(lambda: bps.push_pull(tf.ones([2]), name="traced before"))
    function()
    TRACED.append(function)


def run_after_shutdown() -> str:
    """Return the error of a function that was made in the job."""
    return refusal(TRACED[0], tf.errors.CancelledError)


CASES = [
    trace_for_the_time_after_shutdown,
    imports_no_other_framework,
    both_workers_are_on_one_host,
    a_sum_and_a_mean_in_a_function_and_eagerly,
    a_sum_has_a_gradient,
    operations_of_variables_have_no_order,
    a_result_that_is_not_used_is_still_summed_in_the_order_of_the_program,
    a_missing_gradient_is_zeros_or_stays_none,
    a_sparse_gradient_is_an_error_or_dense,
    values_of_another_worker_come_bit_for_bit,
    several_passes_make_one_step,
    all_workers_skip_the_step_that_overflows,
    metrics_are_means_and_rates_rise,
    a_model_is_saved_as_if_nothing_had_wrapped_it,
    mistakes_are_told_with_their_cure,
    a_known_key_with_another_size_is_an_error_of_the_operation,
    ctrl_c_ends_a_wait,
    workers_that_disagree_learn_the_name,
]
