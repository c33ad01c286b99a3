"""Weights of a job are those of one process that averages in rank order, bit for bit."""

from typing import Callable, Iterator, List, Tuple

import numpy as np
import tensorflow as tf

import bytescheduler.keras
import bytescheduler.tensorflow as bps

STEPS = 20
BATCH = 8
Batch = Tuple[tf.Tensor, tf.Tensor]
MAKERS = {
    "SGD": lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
    "Adam": lambda: tf.keras.optimizers.Adam(0.01),
}


def batches(rank: int) -> List[Batch]:
    """Return the batches of a worker."""
    rng = np.random.default_rng(rank)
    images = rng.normal(size=(STEPS, BATCH, 6)).astype(np.float32)
    labels = rng.integers(0, 3, size=(STEPS, BATCH))
    return [(tf.constant(image), tf.constant(label)) for image, label in zip(images, labels)]


def model_of(seed: int) -> tf.keras.Model:
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(16, activation="tanh", input_shape=(6,)),
            tf.keras.layers.Dense(16, activation="tanh"),
            tf.keras.layers.Dense(3),
        ]
    )


LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def gradients_of(model: tf.keras.Model, batch: Batch) -> List[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = LOSS(batch[1], model(batch[0], training=True))
    return tape.gradient(loss, model.trainable_variables)


def expected(maker: Callable[[], object], *, compiled: bool) -> List[np.ndarray]:
    """Return the weights of one process that averages the gradients of all workers."""
    model = model_of(0)
    optimizer = maker()
    optimizer.build(model.trainable_variables)
    compute = tf.function(gradients_of) if compiled else gradients_of

    def apply(gradients: List[tf.Tensor]) -> None:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    apply = tf.function(apply) if compiled else apply
    all_batches = [batches(rank) for rank in range(bps.size())]
    for step in range(STEPS):
        every = [compute(model, own[step]) for own in all_batches]
        totals = [sum_in_order(parts) for parts in zip(*every)]
        apply([tf.constant(total * np.float32(1 / bps.size())) for total in totals])
    return model.get_weights()


def sum_in_order(parts: Tuple[tf.Tensor, ...]) -> np.ndarray:
    total = parts[0].numpy()
    for part in parts[1:]:
        total = total + part.numpy()
    return total


def by_fit(maker: Callable[[], object], *, crosses: bool = False) -> List[np.ndarray]:
    model = model_of(bps.rank())  # the callback makes them alike
    model.compile(bps.DistributedOptimizer(maker()), LOSS)
    if crosses:
        bytescheduler.keras.cross_barrier(model)
    own = batches(bps.rank())
    data = tf.data.Dataset.from_tensor_slices(
        (np.stack([b[0] for b in own]), np.stack([b[1] for b in own]))
    )
    callback = bytescheduler.keras.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=[callback])
    return model.get_weights()


def by_tape(maker: Callable[[], object], *, compiled: bool) -> List[np.ndarray]:
    model = model_of(bps.rank())
    optimizer = maker()
    optimizer.build(model.trainable_variables)
    bps.broadcast_variables([*model.variables, *optimizer.variables], 0)

    def step(batch: Batch) -> None:
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = LOSS(batch[1], model(batch[0], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step = tf.function(step) if compiled else step
    for batch in batches(bps.rank()):
        step(batch)
    return model.get_weights()


def cases(names: List[str]) -> Iterator[str]:
    """Compare with these optimizers, and yield the name of each case that is the same."""
    for name in names:
        maker = MAKERS[name]
        for kind, trained, compiled in (
            ("fit", by_fit, True),
            ("fit across the barrier", lambda m: by_fit(m, crosses=True), True),
            ("a tape in a function", lambda m: by_tape(m, compiled=True), True),
            ("a tape eagerly", lambda m: by_tape(m, compiled=False), False),
        ):
            ours, wanted = trained(maker), expected(maker, compiled=compiled)
            for ours_one, wanted_one in zip(ours, wanted):
                np.testing.assert_array_equal(ours_one, wanted_one, err_msg=f"{name} by {kind}")
            yield f"{name} by {kind}"
