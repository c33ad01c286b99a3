"""A worker that trains in three ways and saves all weights: ``three_ways.py FILE [STEPS]``.

The ways are README's line, a store by its name, and Gluon.  With STEPS it trains by Gluon's
Trainer alone, and prints each step.
"""

import sys
from typing import Dict, Optional

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS, ScheduledTrainer

STEPS, BATCH, FEATURES = 20, 4, 200
OPTIMIZER = {"learning_rate": 0.05, "momentum": 0.9}
Weights = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]


def batch(rank: int, step: int) -> mx.nd.NDArray:
    """Return features that each worker has at this step."""
    return mx.nd.array(np.random.RandomState(1000 * step + rank).randn(BATCH, FEATURES))


def initial(shape: "tuple[int, ...]") -> mx.nd.NDArray:
    """Return the same weights on every worker."""
    return mx.nd.array(np.random.RandomState(len(shape)).uniform(-0.1, 0.1, shape))


def check_whole_sum(store: ScheduledKVS) -> None:
    """Sum whole numbers, of which float32 has the exact sum, with another part of each rank."""
    size = store.num_workers
    numbers = mx.nd.arange(20_000)
    out = mx.nd.zeros(numbers.shape)
    store.init("whole", out)
    store.pushpull("whole", numbers * (store.rank + 1), out=out)
    wanted = (numbers * (size * (size + 1) // 2)).asnumpy()
    assert np.array_equal(out.asnumpy(), wanted), (store.rank, out)


def train_module(kvstore: object, rank: int, name: str) -> Weights:
    """Train by `Module.fit`, which gets the store or its name."""
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=90, name=f"{name}1")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="tanh"), num_hidden=1, name=f"{name}2")
    module = mx.mod.Module(
        mx.sym.LinearRegressionOutput(x, mx.sym.Variable("label"), name="out"),
        label_names=["label"],
    )
    features = mx.nd.concat(*[batch(rank, step) for step in range(STEPS)], dim=0)
    module.fit(
        mx.io.NDArrayIter(features, features[:, 0] * 2, BATCH, label_name="label"),
        eval_metric="mse",
        arg_params={
            f"{name}1_weight": initial((90, FEATURES)),
            f"{name}1_bias": initial((90,)),
            f"{name}2_weight": initial((1, 90)),
            f"{name}2_bias": initial((1,)),
        },
        kvstore=kvstore,
        optimizer_params=OPTIMIZER,
        num_epoch=1,
    )
    return {key: array.asnumpy() for key, array in module.get_params()[0].items()}


def train_gluon(steps: Optional[int]) -> Weights:
    """Train by `ScheduledTrainer` with its own store."""
    net = mx.gluon.nn.Dense(90, in_units=FEATURES, prefix="gluon_")
    net.initialize()
    for parameter in net.collect_params().values():
        parameter.set_data(initial(parameter.shape))
    trainer = ScheduledTrainer(net.collect_params(), "sgd", OPTIMIZER)
    rank, size = trainer.kvstore.rank, trainer.kvstore.num_workers
    for step in range(STEPS if steps is None else steps):
        with mx.autograd.record():
            loss = (net(batch(rank, step % STEPS)) ** 2).sum()
        loss.backward()
        trainer.step(BATCH * size)
        if steps is not None:
            mx.nd.waitall()
            sys.stdout.write(f"step {step}\n")
            sys.stdout.flush()
    return {
        parameter.name: parameter.data().asnumpy() for parameter in net.collect_params().values()
    }


def main() -> None:
    if len(sys.argv) > 2:
        train_gluon(int(sys.argv[2]))
        return
    kvs = mx.kv.create("dist_sync")
    kvs = ScheduledKVS(kvs)  # the line of the README
    assert kvs.type == "dist_sync"
    check_whole_sum(kvs)
    weights = train_module(kvs, kvs.rank, "readme")
    weights.update(train_module("bytescheduler", kvs.rank, "named"))
    weights.update(train_gluon(None))
    assert all(np.isfinite(values).all() for values in weights.values())
    np.savez(f"{sys.argv[1]}-{kvs.rank}", **weights)


if __name__ == "__main__":
    main()
