"""Worker of a job: paced_worker.py STEPS; computes by sleeping, as a model of three layers."""

import sys
import time

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

FLOATS = (100_000, 200_000, 100_000)
BACKWARD_S = (0.03, 0.02, 0.01)

kvs = ScheduledKVS(mx.kv.create("dist_sync"))
weights = [mx.nd.zeros((count,)) for count in FLOATS]
for key, weight in enumerate(weights):
    kvs.broadcast(key, weight, out=weight)
for _ in range(int(sys.argv[1])):
    for weight in weights:
        weight.wait_to_read()
        time.sleep(0.01)
    for key in reversed(range(len(weights))):
        time.sleep(BACKWARD_S[key])
        kvs.pushpull(key, weights[key] + 1, out=weights[key], priority=-key)
mx.nd.waitall()
