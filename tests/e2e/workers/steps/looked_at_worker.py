"""Sums in rounds until rank 0 finds the file ``stop``; rank 1 always comes late."""

import pathlib
import time

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

ROUNDS = 4000  # two minutes

kvs = ScheduledKVS(None)
size = (1000,)
weights, stop = mx.nd.zeros(size), mx.nd.zeros((1,))
kvs.init(0, weights)
kvs.init(1, stop)
for step in range(ROUNDS):
    over = kvs.rank == 0 and pathlib.Path("stop").exists()
    if kvs.rank == 1:
        time.sleep(0.03)  # the straggler that the test looks for
    kvs.pushpull(0, mx.nd.ones(size), out=weights)
    kvs.pushpull(1, mx.nd.full((1,), float(over)), out=stop)
    assert weights.asnumpy().sum() == 2 * size[0]
    if step == 3:
        print("under way", flush=True)
    if stop.asscalar():
        break
kvs.close()
