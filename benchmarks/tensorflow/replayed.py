"""A worker that replays a model's layers with Keras and TensorFlow."""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.lab import lab_job
from benchmarks.lab.ranked import Told
from benchmarks.tensorflow import layers, ways
from benchmarks.tensorflow.arms import ARMS
from benchmarks.tensorflow.device import Device


def _batches(size: int) -> Any:  # noqa: ANN401 - TensorFlow has no types
    """Return samples without end; a strategy gives each worker its share of a batch."""
    zeros = tf.zeros((size, 1))
    dataset = tf.data.Dataset.from_tensors((zeros, zeros)).repeat()
    choice = tf.data.Options()
    choice.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(choice)


def _check(model: Any, last: int, size: int) -> None:  # noqa: ANN401 - Keras has no types
    """Compare all sums of the last step, of that number."""
    for layer, weight in enumerate(model.get_weights()):
        places = np.resize(np.arange(layers.PERIOD, dtype=np.float32), weight.shape)
        total = size * (last + layer + places) + sum(range(size))
        assert np.array_equal(weight, total), f"a sum of layer {layer} is wrong"


def work(told: Told) -> None:
    """Run one worker and report its step times."""
    arm, last = ARMS[told.arm], told.iterations  # a first step makes the graph
    with ways.begin(arm, told.scale) as way:
        device = Device(pathlib.Path(told.library))
        device.begin(way.size, way.rank)
        with way.strategy.scope():
            model = layers.model_of(device, told.steps)
            optimizer = way.wrapped(layers.TakeSum(last))
            model.compile(optimizer, layers.loss)
        way.prepare(model)
        batches = _batches(way.size)
        model.fit(batches, steps_per_epoch=1, verbose=0)
        if told.watched:
            lab_job.await_begin()
        model.fit(batches, steps_per_epoch=told.iterations, verbose=0)
        _check(model, last, way.size)
        assert device.wrong == 0, "a step used a wrong sum"
        ends = device.losses_s()
        assert len(ends) == 1 + last, f"{len(ends)} steps, not {1 + last}"
        lab_job.report({"seconds": [after - before for before, after in zip(ends, ends[1:])]})
