"""Trains a model of Keras 3 on PyTorch by fit; weights are those of one process with all data."""

import os

import torch  # noqa: F401  # before TensorFlow

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

import bytescheduler.tensorflow
import bytescheduler.torch as bps
from bytescheduler.errors import UsageError

STEPS, ROWS = 10, 8


def model_of(seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


def train(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    batches = [each.reshape(-1, *each.shape[2:]) for each in (images, labels)]
    model.fit(*batches, batch_size=images.shape[1], verbose=0, shuffle=False)


bps.init()
data = []
for rank in range(bps.size()):
    rng = np.random.default_rng(rank)
    images = rng.normal(size=(STEPS, ROWS, 6)).astype(np.float32)
    data.append((images, rng.integers(0, 3, size=(STEPS, ROWS))))
model = model_of(bps.rank())
kept = bps.DistributedDataParallel(model)
train(model, *data[bps.rank()])
ends = bps.allgather_object([weight.tobytes() for weight in model.get_weights()])
assert ends[0] == ends[1]
whole = model_of(0)
train(whole, *(np.concatenate(parts, axis=1) for parts in zip(*data)))
for ours, wanted in zip(model.get_weights(), whole.get_weights()):
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)
try:
    bytescheduler.tensorflow.DistributedOptimizer(keras.optimizers.SGD(0.1))
except UsageError as error:
    print(error, flush=True)
bps.shutdown()
