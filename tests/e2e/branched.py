"""A worker that trains a model of branches and saves its weights: ``branched.py STORE FILE``.

Its first layer is frozen, a layer is used twice, one only in even steps, and the names sort against
the order of the layers, so that Gluon numbers them wrongly.  STORE is as for ``train.py``.
"""

import sys
from typing import Dict, List

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

STEPS, BATCH, SIZE = 10, 64, 300


class Branched(mx.gluon.Block):  # type: ignore[misc]  # MXNet has no types
    def __init__(self) -> None:
        super().__init__(prefix="net_")
        with self.name_scope():
            self.frozen = nn.Dense(SIZE, in_units=SIZE, prefix="frozen_")
            self.first = nn.Dense(SIZE, in_units=SIZE, prefix="z_first_")
            self.left = nn.Dense(SIZE, in_units=SIZE, prefix="y_left_")
            self.right = nn.Dense(SIZE, in_units=SIZE, prefix="x_right_")
            self.twice = nn.Dense(SIZE, in_units=SIZE, prefix="d_twice_")
            self.again = nn.Dense(
                SIZE, in_units=SIZE, prefix="d_twice_", params=self.twice.collect_params()
            )
            self.sometimes = nn.Dense(SIZE, in_units=SIZE, prefix="b_sometimes_")
            self.last = nn.Dense(1, in_units=SIZE, prefix="a_last_")
        self.frozen.collect_params().setattr("grad_req", "null")

    def forward(self, images: mx.nd.NDArray, used: bool) -> mx.nd.NDArray:
        first = mx.nd.tanh(self.first(self.frozen(images)))
        joined = mx.nd.tanh(self.left(first) + self.right(first))
        value = mx.nd.tanh(self.again(mx.nd.tanh(self.twice(joined))))
        return self.last(mx.nd.tanh(self.sometimes(value)) if used else value)


def train(
    kvs: mx.kvstore.KVStore,
) -> "Dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]":
    net = Branched()
    net.initialize()
    for name, parameter in net.collect_params().items():
        random = np.random.RandomState(sum(name.encode()) % 1000)
        parameter.set_data(mx.nd.array(random.uniform(-0.05, 0.05, parameter.shape)))
    trainer = mx.gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kvs, update_on_kvstore=False
    )
    trainer._init_kvstore()  # waiting, as train.py does and says why
    trainer._init_params()
    mx.nd.waitall()
    random = np.random.RandomState(kvs.rank)
    data: List[mx.nd.NDArray] = [mx.nd.array(random.randn(BATCH, SIZE)) for _ in range(STEPS)]
    for step, images in enumerate(data):
        with mx.autograd.record():
            value = mx.nd.mean(mx.nd.square(net(images, step % 2 == 0) - 1))
        value.backward()
        trainer.step(kvs.num_workers, ignore_stale_grad=True)
        mx.nd.waitall()
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def main() -> None:
    store, file = sys.argv[1:]
    kvs = mx.kv.create("dist_sync")
    if store != "stock":
        from bytescheduler.mxnet import ScheduledKVS

        kvs = ScheduledKVS(kvs)
    np.savez(f"{file}-{kvs.rank}", **train(kvs))


if __name__ == "__main__":
    main()
