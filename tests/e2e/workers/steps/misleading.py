"""A worker whose gradients become ready in another order than their priorities say."""

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS

KEYS = 8
STEPS = 10
# Odd ones before even ones, as if they were numbered by names that sort so.
PRIORITIES = [-(key // 2 + (0 if key % 2 else KEYS // 2)) for key in range(KEYS)]


def main() -> None:
    """Let each step's gradients come from the last key to the first, after all were called for."""
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    outs = [mx.nd.zeros((64,)) for _ in range(KEYS)]
    for key, out in enumerate(outs):
        kvs.broadcast(key, out, out=out)
    work = mx.nd.ones((1000, 1000))
    layer = mx.nd.ones((600, 600))
    for step in range(STEPS):
        # So long that all calls below are made before the first gradient is there.
        value = mx.nd.dot(work, work)[:600, :600] / 1000 * (step + kvs.rank)
        grads = []
        for _ in range(KEYS):
            value = mx.nd.dot(layer, value) / 600 + 1  # milliseconds, on a fast core one
            grads.insert(0, value[0, :64])
        for key in sorted(range(KEYS), key=lambda key: -PRIORITIES[key]):
            kvs.pushpull(key, grads[key], out=outs[key], priority=PRIORITIES[key])
        for key, out in enumerate(outs):
            expected = kvs.num_workers * (step + KEYS - key) + sum(range(kvs.num_workers))
            np.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-5)


if __name__ == "__main__":
    main()
