"""A training by fit, of which worker 1 does not make all steps."""

import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

import bytescheduler.keras as bps

CASE = sys.argv[1]


class End(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        print(f"made step {batch}", flush=True)
        if bps.rank() != 1 or batch < 3:
            return
        if CASE == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if CASE == "waits":
            print("waits", flush=True)
            time.sleep(60)


bps.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(4, input_shape=(3,), name="first")])
model.compile(bps.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
start = bps.callbacks.BroadcastGlobalVariablesCallback(0)
steps = 4 if CASE == "short" and bps.rank() == 1 else 8
try:
    model.fit(
        np.ones((8 * steps, 3)),
        np.zeros((8 * steps, 4)),
        batch_size=8,
        verbose=0,
        callbacks=[start, End()],
    )
except tf.errors.OpError as error:
    print(f"{type(error).__name__}: {error.message}", flush=True)
    raise
