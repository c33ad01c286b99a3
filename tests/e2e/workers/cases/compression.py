"""A worker that sums in two bits an element and saves every sum: ``compression.py STORE FILE``.

STORE is "stock" (push, then pull: the stock store refuses pushpull), "push" or "pushpull" (ours),
or "late" (pushpull, and compression is set when keys are in use).  With "stock-updated" and
"updated" it is set after an optimizer has updated, and weights are saved.
"""

import sys

import mxnet as mx
import numpy as np
from two_bit_model import SHAPES, THRESHOLD, gradients

Array = mx.nd.NDArray
ROWS = (4, 3)


def read(kvs: mx.kvstore.KVStore, key: int, like: Array) -> np.ndarray:
    out = mx.nd.zeros_like(like)
    if like.stype == "default":
        kvs.pull(key, out=out)
    else:
        kvs.row_sparse_pull(key, out=out, row_ids=mx.nd.arange(ROWS[0]))
    return out.asnumpy()


def update(kvs: mx.kvstore.KVStore, file: str, *, ours: bool) -> None:
    """Train, compress, train; what stock servers die of when compressed is left to ours."""
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.5))
    first = {key: mx.nd.full(shape, 1.1) for key, shape in SHAPES.items()}
    others = {20: mx.nd.ones(ROWS, dtype="float16"), 21: mx.nd.ones(ROWS).tostype("row_sparse")}
    for key, value in {**first, **others}.items():
        kvs.init(key, value)
    saved = {}
    steps = list(enumerate(gradients(kvs.rank)))
    for step, mine in steps:
        if step == len(steps) // 2:
            before = {key: read(kvs, key, value) for key, value in others.items()}
            kvs._barrier()  # the stock store's rank 0 tells the servers, and nobody waits for it
            kvs.set_gradient_compression({"type": "2bit", "threshold": THRESHOLD})
            kvs._barrier()
            if ours:
                for key, value in others.items():
                    np.testing.assert_array_equal(read(kvs, key, value), before[key])
        for key, gradient in mine.items():
            kvs.push(key, mx.nd.array(gradient), priority=-key)
            saved[f"{step}/{key}"] = read(kvs, key, first[key])
        for key, value in others.items() if step < len(steps) // 2 else ():
            # Stock servers keep float16 in float32, or not, as uninitialised memory has it; an
            # eighth is exact in both.
            kvs.push(key, value * 0.125)
            saved[f"{step}/{key}"] = read(kvs, key, value)
    np.savez(f"{file}-{kvs.rank}", **saved)
    if ours:  # an optimizer of rank 0 alone is everyone's at the barrier, as without compression
        if kvs.rank == 0:
            kvs.set_optimizer(mx.optimizer.SGD(learning_rate=1))
        kvs._barrier()
        kvs.init(22, mx.nd.ones(ROWS))
        kvs.push(22, mx.nd.full(ROWS, THRESHOLD))
        assert (read(kvs, 22, mx.nd.ones(ROWS)) == np.float32(1 - 2 * np.float32(THRESHOLD))).all()
    kvs._barrier()


def main() -> None:
    store, file = sys.argv[1:]
    kvs = mx.kv.create("dist_sync")
    if not store.startswith("stock"):
        from bytescheduler.mxnet import ScheduledKVS

        kvs = ScheduledKVS(kvs)
    if store.endswith("updated"):
        return update(kvs, file, ours=store == "updated")
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
    return None


if __name__ == "__main__":
    main()
