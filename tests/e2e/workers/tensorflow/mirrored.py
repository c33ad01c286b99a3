"""A `MirroredStrategy` over two devices in each of two workers."""

from typing import Any, Callable, List

import numpy as np
import same_weights
import tensorflow as tf

import bytescheduler.keras as bps
import bytescheduler.tensorflow as bps_tensorflow
from bytescheduler.errors import UsageError

DEVICES = 2
STEPS = 6
ROWS = 8  # of a device and step


def split_processor() -> None:
    """Give this process two devices; before TensorFlow has any."""
    (processor,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        processor, [tf.config.LogicalDeviceConfiguration()] * DEVICES
    )


def strategy_of(**options: Any) -> tf.distribute.Strategy:  # noqa: ANN401
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    assert len(devices) == DEVICES
    ops = bps_tensorflow.CrossDeviceOps(**options)
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=ops)


def data(rank: int) -> Any:  # noqa: ANN401
    rng = np.random.default_rng(rank)
    images = rng.normal(size=(STEPS, DEVICES, ROWS, 6)).astype(np.float32)
    return images, rng.integers(0, 3, size=(STEPS, DEVICES, ROWS))


def _inner(variable: Any) -> tf.Variable:  # noqa: ANN401
    """Return TensorFlow's variable in one of Keras 3."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def wanted() -> List[np.ndarray]:
    """Return the weights of one process that averages over workers of two devices each."""
    model = same_weights.model_of(0)
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function
    def gradients_of(images: tf.Tensor, labels: tf.Tensor) -> List[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = same_weights.LOSS(labels, model(images, training=True)) / DEVICES
        return tape.gradient(loss, model.trainable_variables)

    workers = [data(rank) for rank in range(bps.size())]
    for step in range(STEPS):
        sums = []
        for images, labels in workers:
            replicas = [gradients_of(images[step, d], labels[step, d]) for d in range(DEVICES)]
            sums.append([tf.add_n(parts) for parts in zip(*replicas)])
        means = [same_weights.sum_in_order(parts) / bps.size() for parts in zip(*sums)]
        optimizer.apply_gradients(zip(means, model.trainable_variables))
    return model.get_weights()


def devices_of_all_workers_train_as_one() -> None:
    strategy = strategy_of()
    with strategy.scope():
        model = same_weights.model_of(bps.rank())
        model.compile(
            tf.keras.optimizers.SGD(0.05, momentum=0.9), same_weights.LOSS, metrics=["accuracy"]
        )
    images, labels = data(bps.rank())
    start = bps.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(
        images.reshape(-1, 6),
        labels.reshape(-1),
        batch_size=DEVICES * ROWS,
        shuffle=False,
        verbose=0,
        callbacks=[start],
    )
    for ours, theirs in zip(model.get_weights(), wanted()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    ends = bps_tensorflow.allgather_object(
        [
            copy.numpy().tobytes()
            for variable in model.trainable_variables
            for copy in strategy.experimental_local_results(_inner(variable))
        ]
    )
    assert ends[0] == ends[1]
    assert ends[0][::DEVICES] == ends[0][1::DEVICES]
    if bps.rank() == 0:  # metrics are of this worker alone
        model.evaluate(images[0, 0], labels[0, 0], verbose=0)


def a_replica_sums_over_all_workers() -> None:
    for options, total in (({}, 3.0), ({"op": bps.Sum}, 6.0)):
        strategy = strategy_of(**options)

        def replica() -> List[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            values = [tf.fill([3], bps.rank() + 1.0), tf.fill([2], bps.rank() + 1.0)]
            return [*context.all_reduce("SUM", values), context.all_reduce("MEAN", values[0])]

        function = tf.function(lambda strategy=strategy, replica=replica: strategy.run(replica))
        for _ in range(2):
            results = [strategy.experimental_local_results(value) for value in function()]
            for copies, number in zip(results, (total, total, 1.5)):
                assert [set(copy.numpy()) for copy in copies] == [{number}] * DEVICES
        graph = function.get_concrete_function().graph
        ours = [op for op in graph.get_operations() if op.type == "BsPushPull"]
        assert len(ours) == 3
        for op in ours:
            assert [before for before in op.control_inputs if before.type == op.type] == []
    values = strategy.run(lambda: tf.constant(bps.rank() + 1.0))
    assert float(strategy.reduce("SUM", values, axis=None)) == DEVICES * (bps.rank() + 1.0)


def crossed(strategy: tf.distribute.Strategy) -> None:
    """Train a model that crosses the barrier under a strategy."""
    with strategy.scope():
        model = same_weights.model_of(0)
        model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), same_weights.LOSS)
        bps.cross_barrier(model)
    model.fit(np.ones((4, 6)), np.zeros(4), verbose=0)


def mistakes_with_strategies_are_told() -> None:
    def refusal(call: Callable[[], object]) -> str:
        try:
            call()
        except UsageError as error:
            return str(error)
        raise AssertionError("nothing was refused")

    assert "want Average or Sum" in refusal(lambda: bps_tensorflow.CrossDeviceOps(op="max"))
    assert "such as tf.distribute.Reduct" in refusal(lambda: bps_tensorflow.CrossDeviceOps(local=1))
    strategy = strategy_of()
    with strategy.scope():
        weight = tf.Variable([1.0])
        optimizer = bps.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))

    def step() -> None:
        optimizer.apply_gradients([(tf.constant([1.0]), weight)])

    for call in (lambda: strategy.run(step), lambda: crossed(strategy)):
        text = refusal(call)
        assert "with 2 devices neither an optimizer nor a tape is wrapped" in text


CASES: List[Callable[[], None]] = [
    devices_of_all_workers_train_as_one,
    a_replica_sums_over_all_workers,
    mistakes_with_strategies_are_told,
]
