"""A worker that sums in two bits an element and saves every sum: ``compression.py STORE FILE``.

STORE is "stock" (push, then pull: the stock store refuses pushpull), "push" or "pushpull" (ours),
or "late" (pushpull, and compression is set when keys are in use).
"""

import sys

import mxnet as mx
import numpy as np
from two_bit_model import SHAPES, THRESHOLD, gradients


def main() -> None:
    store, file = sys.argv[1:]
    kvs = mx.kv.create("dist_sync")
    if store != "stock":
        from bytescheduler.mxnet import ScheduledKVS

        kvs = ScheduledKVS(kvs)
    compression = {"type": "2bit", "threshold": THRESHOLD}
    if store != "late":
        kvs.set_gradient_compression(compression)
    saved = {}
    last = {}
    for key, shape in SHAPES.items():
        out = mx.nd.zeros(shape)
        kvs.broadcast(key, mx.nd.full(shape, 1.1), out=out)
        # What is not pushed is not compressed.
        assert (out.asnumpy() == np.float32(1.1)).all(), key
        last[key] = out.asnumpy()
    if store == "late":
        for key, shape in SHAPES.items():
            kvs.pushpull(key, mx.nd.full(shape, 0.7 + kvs.rank), out=mx.nd.zeros(shape))
        kvs.set_gradient_compression(compression)
        for key, shape in SHAPES.items():
            out = mx.nd.zeros(shape)
            kvs.pull(key, out=out)
            assert (out.asnumpy() == np.float32(0.7) + np.float32(1.7)).all(), key
            last[key] = out.asnumpy()
    for step, mine in enumerate(gradients(kvs.rank)):
        outs = {key: mx.nd.zeros(shape) for key, shape in SHAPES.items()}
        before = {key: mx.nd.zeros(shape) for key, shape in SHAPES.items()}
        for key, gradient in mine.items():
            if store != "stock":  # which may pull what the push after it makes
                kvs.pull(key, out=before[key], priority=-key)
            if store in ("pushpull", "late"):
                kvs.pushpull(key, mx.nd.array(gradient), out=outs[key], priority=-key)
            else:
                kvs.push(key, mx.nd.array(gradient), priority=-key)
                kvs.pull(key, out=outs[key], priority=-key)
        for key, out in outs.items():
            saved[f"{step}/{key}"] = out.asnumpy()
            if store != "stock":
                np.testing.assert_array_equal(before[key].asnumpy(), last[key], str((step, key)))
            last[key] = out.asnumpy()
    np.savez(f"{file}-{kvs.rank}", **saved)
    kvs._barrier()


if __name__ == "__main__":
    main()
