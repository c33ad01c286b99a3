"""Trains a small model, to be recorded: ``recorded_model.py module|plain|hybrid|resnet STEPS``.

It prints the names of its parameters in the order of forward.
"""

import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from bytescheduler.mxnet import ScheduledKVS

LAYERS = 11  # so many that the order of their names is another
BATCH = 16


def module(kvs: ScheduledKVS, steps: int) -> None:
    out = mx.sym.Variable("data")
    for layer in range(LAYERS):
        out = mx.sym.FullyConnected(out, num_hidden=512, name=f"fc{layer}")
        out = mx.sym.Activation(out, act_type="relu")
    out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(out, num_hidden=4, name="out"), name="softmax")
    x = np.random.RandomState(1).rand(BATCH * steps, 64)
    data = mx.io.NDArrayIter(x, np.zeros(len(x)), BATCH)
    trained = mx.mod.Module(out)
    print("FORWARD", *(name for name in out.list_arguments() if name.endswith(("weight", "bias"))))
    trained.fit(data, kvstore=kvs, optimizer="sgd", num_epoch=1)


def train(kvs: ScheduledKVS, net: gluon.HybridBlock, x: mx.nd.NDArray, steps: int) -> None:
    net.initialize()
    net(x)  # shapes become known
    trained = (name for name, each in net.collect_params().items() if each.grad_req != "null")
    print("FORWARD", *trained)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=kvs)
    for _ in range(steps):
        with autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        trainer.step(1)
        mx.nd.waitall()


def plain(kvs: ScheduledKVS, steps: int, *, hybrid: bool = False) -> None:
    net = gluon.nn.HybridSequential()
    for _ in range(LAYERS):
        net.add(gluon.nn.Dense(512, activation="relu"))
    net.add(gluon.nn.Dense(4))
    if hybrid:
        net.hybridize(static_alloc=True)
    train(kvs, net, mx.nd.ones((BATCH, 64)), steps)


def hybrid(kvs: ScheduledKVS, steps: int) -> None:
    plain(kvs, steps, hybrid=True)


def resnet(kvs: ScheduledKVS, steps: int) -> None:
    net = gluon.model_zoo.vision.resnet18_v1(classes=4)
    net.hybridize()
    train(kvs, net, mx.nd.ones((2, 3, 32, 32)), steps)


with ScheduledKVS() as store:
    globals()[sys.argv[1]](store, int(sys.argv[2]))
