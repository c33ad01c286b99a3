"""A training by fit, in which the last worker is killed."""

import os
import signal
import time

import numpy as np
import tensorflow as tf

import bytescheduler.keras as bps


class Kill(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if bps.rank() == bps.size() - 1 and batch == 3:
            print(f"killed at {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def fit() -> None:
    """Train until the loss of the worker ends it."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, input_shape=(3,), name="first")])
    model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    start = bps.callbacks.BroadcastGlobalVariablesCallback(0)
    steps = 8
    try:
        model.fit(
            np.ones((8 * steps, 3)),
            np.zeros((8 * steps, 4)),
            batch_size=8,
            verbose=0,
            callbacks=[start, Kill()],
        )
    except tf.errors.UnavailableError as error:
        print(f"UnavailableError at {time.time()}: {error.message}", flush=True)
        raise
