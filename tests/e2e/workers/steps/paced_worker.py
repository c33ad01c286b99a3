"""Worker of a job: paced_worker.py STEPS; computes by sleeping, as a model of three layers.

Prints how long it slept in a step, and how long a step took, medians, as JSON.
"""

import json
import statistics
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
slept = []
took = []


def sleep(seconds: float) -> None:
    """Sleep, and add to the latest of `slept` for how long."""
    before = time.perf_counter()
    time.sleep(seconds)
    slept[-1] += time.perf_counter() - before


for _ in range(int(sys.argv[1])):
    begin = time.perf_counter()
    slept.append(0.0)
    for weight in weights:
        weight.wait_to_read()
        sleep(0.01)
    for key in reversed(range(len(weights))):
        sleep(BACKWARD_S[key])
        kvs.pushpull(key, weights[key] + 1, out=weights[key], priority=-key)
    took.append(time.perf_counter() - begin)
mx.nd.waitall()
print(json.dumps({"slept": statistics.median(slept), "step": statistics.median(took)}))
