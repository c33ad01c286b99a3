"""Stores under our store: ``wrapped_stores.py KIND``, or ``native KIND`` for a ``dist`` one.

KIND is one of one process, or "p3" on stock servers.
"""

import os
import sys

import mxnet as mx
import numpy as np
from callers import FC, Weights, gluon, initial, iterator, symbol

from bytescheduler.mxnet import ScheduledKVS


def fit(kvs: mx.kvstore.KVStore) -> Weights:
    module = mx.mod.Module(symbol(), label_names=["label"], context=[mx.cpu(0), mx.cpu(1)])
    options = {"learning_rate": 0.05, "rescale_grad": 0.125}  # that of all stores alike
    module.fit(
        iterator([0, 1]),
        kvstore=kvs,
        optimizer="sgd",
        optimizer_params=options,
        eval_metric="mse",
        arg_params=initial(FC),
        num_epoch=2,
    )
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


def trains_alike(kind: str) -> None:
    trainings = [gluon(update) for update in (True, False)]
    if kind == "teststore":  # cannot update, and has no init for Module
        trainings = trainings[1:]
    else:
        trainings.append(lambda store, _: fit(store))
    for train in trainings:
        kvs = ScheduledKVS(mx.kv.create(kind))
        assert kvs.type == kind
        ours, theirs = train(kvs, [0, 1]), train(mx.kv.create(kind), [0, 1])
        for name, want in theirs.items():
            np.testing.assert_array_equal(ours[name], want, err_msg=name)
            assert np.isfinite(want).all()


def p3() -> None:
    """Its servers only add up.  Keys one after the other: stock mixes up the replies of several."""
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    assert kvs._is_p3
    assert not kvs.is_capable("optimizer")
    n, shape = kvs.num_workers, (50, 30)
    kvs.init(["a", "b"], [mx.nd.ones(shape)] * 2)
    for step in range(3):
        for index, key in enumerate(("a", "b")):
            out = mx.nd.zeros(shape)
            value = mx.nd.full(shape, step + kvs.rank + index)
            kvs.pushpull(key, value, out=out, priority=-index)
            assert (out.asnumpy() == n * (step + index) + n * (n - 1) / 2).all()
    kvs.barrier()


def native(kind: str) -> None:
    """Sums over two devices of each worker, and updates, which P3's own servers cannot do."""
    inner = mx.kv.create(kind)
    assert inner._is_p3 is (os.environ["DMLC_PS_VAN_TYPE"] == "p3")
    kvs = ScheduledKVS(inner)
    assert (kvs.type, kvs.rank, kvs._is_p3) == (kind, inner.rank, False)
    assert kvs.is_capable("optimizer")
    n, shape = kvs.num_workers, (50, 30)
    kvs.init(["a", "b"], [mx.nd.full(shape, 7 + kvs.rank)] * 2)
    outs = [[mx.nd.zeros(shape, ctx=mx.cpu(device)) for device in (0, 1)] for _ in "ab"]
    kvs.pull(["a", "b"], out=outs)
    assert all((out.asnumpy() == 7).all() for pair in outs for out in pair)
    for step in range(3):
        values = [
            [mx.nd.full(shape, step + kvs.rank + index, ctx=mx.cpu(device)) for device in (0, 1)]
            for index in (0, 1)
        ]
        kvs.pushpull(["a", "b"], values, out=outs, priority=-step)
        for index, pair in enumerate(outs):
            want = 2 * (n * (step + index) + n * (n - 1) / 2)
            assert all((out.asnumpy() == want).all() for out in pair)
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
    before = outs[0][0].asnumpy()
    kvs.push("a", [mx.nd.ones(shape, ctx=mx.cpu(device)) for device in (0, 1)])
    kvs.pull("a", out=outs[0])
    assert (outs[0][1].asnumpy() == before - 0.5 * 2 * n).all()
    kvs.barrier()


if __name__ == "__main__":
    if sys.argv[1] == "native":
        native(sys.argv[2])
    elif sys.argv[1] == "p3":
        p3()
    else:
        trains_alike(sys.argv[1])
    print("well done")
