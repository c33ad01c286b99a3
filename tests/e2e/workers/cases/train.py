"""A worker that trains 50 steps and saves its weights: ``train.py STORE API OPTIMIZER FILE``.

STORE is "stock" or "scheduled": the same script, with and without the one added line; or
"cut-anew", scheduled with partitions of another size all the time.  An API that ends in
"-compressed" pushes gradients in two bits an element; one that ends in "-half" has weights and
gradients of float16, and its optimizer keeps float32 besides.
"""

import contextlib
import sys
from types import ModuleType
from typing import ContextManager, Dict, List, Optional

import mxnet as mx
import numpy as np
from mxnet.contrib.svrg_optimization.svrg_module import SVRGModule

STEPS, BATCH, FEATURES, CLASSES = 50, 8, 20, 7
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3},
    "adam": {"learning_rate": 0.01, "wd": 1e-4},
}
Weights = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]

Compression = Optional[Dict[str, object]]


def data_of(rank: int) -> "List[tuple[mx.nd.NDArray, mx.nd.NDArray]]":
    random = np.random.RandomState(rank)
    return [
        (
            mx.nd.array(random.randn(BATCH, 1, FEATURES, FEATURES)),
            mx.nd.array(random.randint(0, CLASSES, BATCH)),
        )
        for _ in range(STEPS)
    ]


def initial(name: str, shape: "tuple[int, ...]") -> mx.nd.NDArray:
    """Return the same weights everywhere, whoever is rank 0."""
    seed = sum(name.encode()) % 1000
    return mx.nd.array(np.random.RandomState(seed).uniform(-0.1, 0.1, shape))


class InFloat32:
    """What float16 has no operator for on a CPU."""

    def hybrid_forward(self, F: ModuleType, x: object, **weights: object) -> object:  # noqa: N803
        wide = {name: F.cast(weight, "float32") for name, weight in weights.items()}
        return super().hybrid_forward(F, x, **wide)  # type: ignore[misc]


class Conv2D(InFloat32, mx.gluon.nn.Conv2D):  # type: ignore[misc]
    pass


class Dense(InFloat32, mx.gluon.nn.Dense):  # type: ignore[misc]
    pass


def train_gluon(
    kvs: mx.kvstore.KVStore,
    optimizer: str,
    update_on_kvstore: bool,
    compression: Compression,
    dtype: str,
) -> Weights:
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        # Smooth, so that sums that are rounded otherwise give weights that are: where a maximum is
        # taken, one of some 80 orders of adding up four gradients ends 3e-4 away.
        net.add(Conv2D(6, 5, in_channels=1, activation="tanh"))
        net.add(mx.gluon.nn.AvgPool2D(2))
        net.add(Dense(30, in_units=384, activation="tanh"))
        net.add(Dense(CLASSES, in_units=30))
    net.initialize()
    for parameter in net.collect_params().values():
        parameter.set_data(initial(parameter.name, parameter.shape))
    net.cast(dtype)
    net.hybridize()
    trainer = mx.gluon.Trainer(
        net.collect_params(),
        optimizer,
        {**OPTIMIZERS[optimizer], "multi_precision": dtype == "float16"},
        kvstore=kvs,
        update_on_kvstore=update_on_kvstore,
        compression_params=compression,
    )
    # As the first step would, but waiting: a stock server may answer a first pull that nobody
    # waited for with the sum of the gradients pushed behind it, and there is nothing to compare.
    trainer._check_and_rescale_grad(1.0 / (BATCH * kvs.num_workers))
    trainer._init_kvstore()
    trainer._init_params()
    mx.nd.waitall()
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for images, labels in data_of(kvs.rank):
        with mx.autograd.record():
            value = loss(net(images), labels)
        value.backward()
        trainer.step(BATCH * kvs.num_workers)
        mx.nd.waitall()  # the stock store mixes up steps that nobody waits for
    return {p.name: p.data().asnumpy() for p in net.collect_params().values()}


def train_module(kvs: mx.kvstore.KVStore, optimizer: str, compression: Compression) -> Weights:
    x = mx.sym.Flatten(mx.sym.Variable("data"))
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=30, name="fc1"), act_type="tanh")
    x = mx.sym.FullyConnected(x, num_hidden=CLASSES, name="fc2")
    module = mx.mod.Module(
        mx.sym.SoftmaxOutput(x, name="softmax"),
        context=[mx.cpu(0), mx.cpu(1)],
        compression_params=compression,
    )
    module.bind([("data", (BATCH, 1, FEATURES, FEATURES))], [("softmax_label", (BATCH,))])
    module.init_params()
    arguments, _ = module.get_params()
    module.set_params({name: initial(name, a.shape) for name, a in arguments.items()}, {})
    module.init_optimizer(kvs, optimizer, OPTIMIZERS[optimizer])
    for images, labels in data_of(kvs.rank):
        module.forward_backward(mx.io.DataBatch([images], [labels]))
        module.update()
        mx.nd.waitall()
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


class WaitingSVRGModule(SVRGModule):  # type: ignore[misc]  # MXNet has no types
    """Waits for what it pulled: a stock store may answer with what is pushed behind that."""

    def update_full_grads(self, train_data: mx.io.DataIter) -> None:
        mx.nd.waitall()
        super().update_full_grads(train_data)


def train_svrg(kvs: mx.kvstore.KVStore, optimizer: str) -> Weights:
    """Train by its module of MXNet, which sums the gradients of whole epochs over the store too."""
    batches = data_of(kvs.rank)[:5]
    images, labels = (mx.nd.concat(*arrays, dim=0) for arrays in zip(*batches))
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=1, name="fc")
    module = WaitingSVRGModule(
        mx.sym.LinearRegressionOutput(x, mx.sym.Variable("label"), name="out"),
        label_names=["label"],
        update_freq=2,
    )
    shapes = {"fc_weight": (1, FEATURES * FEATURES), "fc_bias": (1,)}
    module.fit(
        mx.io.NDArrayIter(images, labels, BATCH, label_name="label"),
        eval_metric="mse",
        arg_params={name: initial(name, shape) for name, shape in shapes.items()},
        kvstore=kvs,
        optimizer=optimizer,
        optimizer_params={**OPTIMIZERS[optimizer], "learning_rate": 0.001},
        batch_end_callback=lambda _: mx.nd.waitall(),
        num_epoch=3,
    )
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


def push_then_pull(kvs: mx.kvstore.KVStore) -> None:
    """Let a stock store, which refuses to compress in pushpull, do it in two calls."""

    def pushpull(key: int, value: object, out: object = None, priority: int = 0) -> None:
        kvs.push(key, value, priority)
        kvs.pull(key, value if out is None else out, priority)

    kvs.pushpull = pushpull


def train(kvs: mx.kvstore.KVStore, api: str, optimizer: str, compression: Compression) -> Weights:
    if api == "svrg":
        return train_svrg(kvs, optimizer)
    if api.startswith("module"):
        return train_module(kvs, optimizer, compression)
    update_on_kvstore = not api.startswith("gluon-local-update")
    dtype = "float16" if api.endswith("-half") else "float32"
    return train_gluon(kvs, optimizer, update_on_kvstore, compression, dtype)


def main() -> None:
    store, api, optimizer, file = sys.argv[1:]
    kvs = mx.kv.create("dist_sync")
    compression = {"type": "2bit", "threshold": 0.01} if api.endswith("-compressed") else None
    if store == "stock" and compression:
        push_then_pull(kvs)
    changes: ContextManager[None] = contextlib.nullcontext()
    if store != "stock":
        from bytescheduler.mxnet import ScheduledKVS

        kvs = ScheduledKVS(kvs)  # the only added line
    if store == "cut-anew":
        import cut_anew

        changes = cut_anew.all_the_time(kvs)
    with changes:
        weights = train(kvs, api, optimizer, compression)
    for name, values in weights.items():
        assert np.isfinite(values).all(), name
        first = initial(name, values.shape).astype(values.dtype).asnumpy()
        assert (values != first).any(), f"{name} was not trained"
    np.savez(f"{file}-{kvs.rank}", **weights)


if __name__ == "__main__":
    main()
