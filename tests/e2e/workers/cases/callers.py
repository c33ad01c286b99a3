"""MXNet's callers over our store, against one process whose devices play the workers.

``callers.py native CASE...`` runs cases in a worker; ``callers.py stock CASE=PORT...`` each in a
child and in a job of its own, as stock servers take one store of a process.  Each trains with two
workers, and then alone over a stock local store with a device for each worker of the job: the sums
are the same.
"""

import os
import pathlib
import sys
from typing import Callable, Dict, List, Optional

import mxnet as mx
import numpy as np
from children import in_turn

from bytescheduler.mxnet import ScheduledTrainer

# The worker, also in its children.
WORKER = os.getpid()
# More steps than the order of keys takes to be learned.
FEATURES, BATCH, STEPS = 6, 4, 12
Weights = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]
# From a store, and the workers whose data this process has, to the weights at the end.
Train = Callable[[mx.kvstore.KVStore, List[int]], Weights]


def compare(train: Train, *, devices: int = 1, rtol: float = 0.0) -> None:
    """Assert that the job ends as the process alone; exactly, or within `rtol`."""
    with mx.kv.create("bytescheduler") as store:
        rank, n = store.rank, store.num_workers
        ours = train(store, list(range(rank * devices, (rank + 1) * devices)))
    alone = train(mx.kv.create("local"), list(range(n * devices)))
    assert ours.keys() == alone.keys()
    for name, want in alone.items():
        assert np.isfinite(want).all(), name
        np.testing.assert_allclose(ours[name], want, rtol=rtol, atol=rtol, err_msg=name)


def contexts(who: "List[int]") -> "List[mx.Context]":
    return [mx.cpu(device) for device in range(len(who))]


def inputs(who: int, steps: int = STEPS) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    random = np.random.RandomState(100 + who)
    return random.uniform(-1, 1, (steps, BATCH, FEATURES)).astype(np.float32)


# -- Gluon -----------------------------------------------------------------------------------------


def make_net(ctx: "List[mx.Context]", seed: int = 0) -> mx.gluon.nn.HybridSequential:
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(5, in_units=FEATURES, activation="tanh"))
        net.add(mx.gluon.nn.Dense(3, in_units=5))
    net.initialize(ctx=ctx)
    random = np.random.RandomState(7 + seed)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(random.uniform(-0.5, 0.5, parameter.shape)))
    net.hybridize()
    return net


def backward(net: mx.gluon.Block, who: "List[int]", step: int) -> None:
    losses = []
    with mx.autograd.record():
        for device, worker in enumerate(who):
            data = mx.nd.array(inputs(worker)[step], ctx=mx.cpu(device))
            losses.append((net(data) ** 2).sum())
    mx.autograd.backward(losses)


def weights_of(net: mx.gluon.Block) -> Weights:
    return {
        p.name: p.list_data()[-1].astype("float32").asnumpy() for p in net.collect_params().values()
    }


def gluon(
    update_on_kvstore: "Optional[bool]",
    trainer_kind: "type[mx.gluon.Trainer]" = mx.gluon.Trainer,
) -> Train:
    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        # Gluon's own hands out rank 0's parameters only after the first pass, which needs them.
        seed = 0 if trainer_kind is mx.gluon.Trainer else who[0]
        net = make_net(contexts(who), seed)
        options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
        kind = trainer_kind if store.type == "dist_sync" else mx.gluon.Trainer
        trainer = kind(
            net.collect_params(),
            "sgd",
            options,
            kvstore=store,
            update_on_kvstore=update_on_kvstore,
        )
        for step in range(STEPS):
            if step == 3:
                # These take effect, which stock servers never see.
                trainer.set_learning_rate(0.01)
                net[0].weight.lr_mult, net[1].weight.wd_mult = 0.5, 3.0
            backward(net, who, step)
            trainer.step(2 * BATCH)
        return weights_of(net)

    return train


def trainers() -> None:
    for update_on_kvstore in (True, False, None):
        compare(gluon(update_on_kvstore))


def trainer_of_its_own_mind() -> None:
    compare(gluon(None))


def another_seed_on_each_worker() -> None:
    """Rank 0's parameters are everyone's, from the first pass on."""
    compare(gluon(None, trainer_kind=ScheduledTrainer))


def with_states(update_on_kvstore: bool, *, load: bool = True) -> Train:
    """Return a training that goes back to the optimizer's states of two steps ago, if `load`."""

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        net, file = make_net(contexts(who)), f"gluon-{store.type}-{os.getpid()}.states"
        trainer = mx.gluon.Trainer(
            net.collect_params(),
            "adam",
            {"learning_rate": 0.1},
            kvstore=store,
            update_on_kvstore=update_on_kvstore,
        )
        for step in range(STEPS):
            if step == 3:
                trainer.save_states(file)
            if step == 5 and load:
                trainer.load_states(file)
                trainer.set_learning_rate(0.01)
            backward(net, who, step)
            trainer.step(2 * BATCH)
        return weights_of(net)

    return train


def states(update_on_kvstore: bool = True) -> None:
    compare(with_states(update_on_kvstore), rtol=1e-5)
    loaded, not_loaded = (
        with_states(update_on_kvstore, load=load)(mx.kv.create("local"), [0, 1])
        for load in (True, False)
    )
    for name, values in loaded.items():
        assert np.abs(values - not_loaded[name]).max() > 1e-3, name


def states_of_an_updater_in_gluon() -> None:
    states(update_on_kvstore=False)


def half_precision() -> None:
    """Steps that float16 loses, and the weights in float32 beside it do not.

    The CPU has no float16 layers, so the weights are cast.
    """

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        parameters = mx.gluon.ParameterDict("half_")
        weight = parameters.get("weight", shape=(FEATURES,), dtype="float16", init="ones")
        parameters.initialize(ctx=contexts(who))
        options = {"learning_rate": 1.0, "multi_precision": True}
        trainer = mx.gluon.Trainer(parameters, "sgd", options, kvstore=store)
        for _ in range(8):
            losses = []
            with mx.autograd.record():
                for context in contexts(who):
                    losses.append(-(2.0**-13) * weight.data(context).astype("float32").sum())
            mx.autograd.backward(losses)
            trainer.step(1)
        values = weight.list_data()[-1].astype("float32").asnumpy()
        assert (values == 1 + store.num_workers * len(who) * 2.0**-10).all(), values
        return {"weight": values}

    compare(train)


def devices() -> None:
    for each in (devices_updated_by_the_store, devices_updated_by_gluon):
        each()


def devices_updated_by_the_store() -> None:
    compare(gluon(True), devices=2, rtol=1e-5)


def devices_updated_by_gluon() -> None:
    compare(gluon(False), devices=2, rtol=1e-5)


def accumulation() -> None:
    """Gradients add up over two passes; they are clipped between the sum and the update."""

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        net = make_net(contexts(who))
        parameters = net.collect_params()
        parameters.setattr("grad_req", "add")
        trainer = mx.gluon.Trainer(
            parameters, "adam", {"learning_rate": 0.1}, kvstore=store, update_on_kvstore=False
        )
        for step in range(0, STEPS, 2):
            parameters.zero_grad()
            backward(net, who, step)
            backward(net, who, step + 1)
            trainer.allreduce_grads()
            for context in contexts(who):
                grads = [p.grad(context) for p in parameters.values()]
                mx.gluon.utils.clip_global_norm(grads, 0.5)
            trainer.update(BATCH)
        return weights_of(net)

    compare(train)


def many_stores() -> None:
    """Two stores in one process, with the same keys, whose steps take turns."""

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        alone = store.type == "local"
        with mx.kv.create("bytescheduler") as second:
            stores = [store, mx.kv.create("local") if alone else second]
            assert alone or second.rank == store.rank
            nets = [make_net(contexts(who)) for _ in stores]
            pairs = [
                (net, mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate}, kvs))
                for net, kvs, rate in zip(nets, stores, (0.1, 0.01))
            ]
            for step in range(STEPS):
                for net, trainer in pairs:
                    backward(net, who, step)
                    trainer.step(1)
            results = [weights_of(net) for net in nets]
        for name, values in results[0].items():
            assert (values != results[1][name]).any()
        return {f"{i}_{name}": v for i, r in enumerate(results) for name, v in r.items()}

    compare(train)
    compare(train)


def sparse_embedding() -> None:
    """With lazy updates and decay, rows that nobody looked up stay as they are."""

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        net = mx.gluon.nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(mx.gluon.nn.Embedding(20, 4, sparse_grad=True))
            net.add(mx.gluon.nn.Dense(1, flatten=False, in_units=4))
        net.initialize(mx.init.One(), ctx=contexts(who))
        options = {"learning_rate": 0.01, "momentum": 0.9, "wd": 0.1}
        trainer = mx.gluon.Trainer(
            net.collect_params(), "sgd", options, kvstore=store, update_on_kvstore=True
        )
        for step in range(STEPS):
            losses = []
            with mx.autograd.record():
                for device, worker in enumerate(who):
                    words = np.random.RandomState(10 * worker + step).randint(0, 15, (3, 2))
                    out = net(mx.nd.array(words, ctx=mx.cpu(device)))
                    losses.append((out**2).mean())
            mx.autograd.backward(losses)
            trainer.step(1)
        weights = weights_of(net)
        assert (weights["net_embedding0_weight"][15:] == 1).all()
        assert (weights["net_embedding0_weight"][:15] != 1).any()
        return weights

    compare(train, rtol=1e-6)


# -- Module ----------------------------------------------------------------------------------------


def symbol() -> mx.sym.Symbol:
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="fc1")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="tanh"), num_hidden=3, name="fc2")
    return mx.sym.LinearRegressionOutput(x, mx.sym.Variable("label"), name="out")


def initial(
    names_and_shapes: "Dict[str, tuple[int, ...]]", seed: int = 0
) -> "Dict[str, mx.nd.NDArray]":
    random = np.random.RandomState(3 + seed)
    return {
        name: mx.nd.array(random.uniform(-0.5, 0.5, names_and_shapes[name]))
        for name in sorted(names_and_shapes)
    }


FC = {"fc1_weight": (5, FEATURES), "fc1_bias": (5,), "fc2_weight": (3, 5), "fc2_bias": (3,)}


def iterator(who: "List[int]") -> mx.io.NDArrayIter:
    """Each batch holds that of each worker, in their order, as the devices will cut it."""
    data = np.concatenate([inputs(worker) for worker in who], axis=1).reshape((-1, FEATURES))
    return mx.io.NDArrayIter(data, data[:, :3] * 2, BATCH * len(who), label_name="label")


def fitted(
    module: mx.mod.Module, store: mx.kvstore.KVStore, who: "List[int]", **options: object
) -> Weights:
    module.fit(
        iterator(who),
        kvstore=store,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.05},
        eval_metric="mse",
        batch_end_callback=mx.callback.Speedometer(BATCH, frequent=3),
        num_epoch=2,
        **options,
    )
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


def checkpoint(store: mx.kvstore.KVStore, who: "List[int]") -> "tuple[str, Dict[str, object]]":
    """Return where a worker's checkpoints are, of any process of it, and a module's options."""
    # Every worker trains alone as "local" 0, at the same time: each of them has its own files.
    prefix = f"fit-{WORKER}-{store.type}"
    return prefix, {"label_names": ["label"], "context": contexts(who)}


def fit_whole(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
    """Fit, with checkpoints.  Each worker has parameters of its own; rank 0's are everyone's."""
    prefix, options = checkpoint(store, who)
    module = mx.mod.Module(symbol(), **options)
    save = mx.callback.module_checkpoint(module, prefix, save_optimizer_states=True)
    start = initial(FC, who[0])
    whole = fitted(module, store, who, arg_params=start, epoch_end_callback=save)
    assert pathlib.Path(f"{prefix}-0001.states").stat().st_size > 0
    assert all((values != initial(FC)[name].asnumpy()).any() for name, values in whole.items())
    return whole


def fit_resumed(
    store: mx.kvstore.KVStore, who: "List[int]", *, load_states: bool = True
) -> Weights:
    """Fit again from the checkpoint of the first epoch."""
    prefix, options = checkpoint(store, who)
    module = mx.mod.Module.load(prefix, 1, load_states, **options)
    return fitted(module, store, who, begin_epoch=1)


def fit() -> None:
    """Module.fit."""
    compare(fit_whole, rtol=1e-5)


def resume() -> None:
    """Module.fit in another store, and perhaps process, than what wrote the checkpoint."""
    compare(fit_resumed, rtol=1e-5)
    alone = mx.kv.create("local")
    resumed = fit_resumed(alone, [0, 1])
    forgetful = fit_resumed(mx.kv.create("local"), [0, 1], load_states=False)
    for name, values in resumed.items():
        # Adam's states are what it resumes with: without them it goes elsewhere.
        assert np.abs(values - forgetful[name]).max() > 1e-3, name


def feed_forward() -> None:
    """The API before Module, which MXNet still has."""

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        options = {"num_epoch": 2, "optimizer": "sgd", "learning_rate": 0.1}
        model = mx.model.FeedForward(
            symbol(), ctx=contexts(who), arg_params=initial(FC), aux_params={}, **options
        )
        model.fit(iterator(who), eval_metric="mse", kvstore=store)
        return {name: array.asnumpy() for name, array in model.arg_params.items()}

    compare(train, rtol=1e-5)


def sparse_module() -> None:
    """A row_sparse weight of which each batch pulls only its rows; with lazy updates and decay."""
    words = 20

    def build() -> mx.sym.Symbol:
        weight = mx.sym.Variable("embedding_weight", stype="row_sparse")
        x = mx.sym.Embedding(
            mx.sym.Variable("data"),
            weight,
            input_dim=words,
            output_dim=4,
            sparse_grad=True,
            name="embedding",
        )
        x = mx.sym.FullyConnected(mx.sym.sum(x, axis=1), num_hidden=3, name="fc")
        return mx.sym.LinearRegressionOutput(x, mx.sym.Variable("label"), name="out")

    def batches(who: "List[int]") -> mx.io.NDArrayIter:
        random = [np.random.RandomState(worker) for worker in who]
        data = np.concatenate([r.randint(0, 15, (STEPS, BATCH, 2)) for r in random], axis=1)
        data = data.reshape((-1, 2)).astype(np.float32)
        return mx.io.NDArrayIter(
            data, data[:, [0, 1, 0]] / words, BATCH * len(who), label_name="label"
        )

    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        module = mx.mod.Module(build(), label_names=["label"], context=contexts(who))
        start = initial({"embedding_weight": (words, 4), "fc_weight": (3, 4), "fc_bias": (3,)})
        start["embedding_weight"] = start["embedding_weight"].tostype("row_sparse")
        pulled: List[int] = []

        def rows(batch: mx.io.DataBatch) -> "Dict[str, mx.nd.NDArray]":
            pulled.append(len(np.unique(batch.data[0].asnumpy())))
            return {"embedding_weight": batch.data[0]}

        module.fit(
            batches(who),
            kvstore=store,
            optimizer="adam",
            optimizer_params={"learning_rate": 0.05, "wd": 0.1, "lazy_update": True},
            eval_metric="mse",
            arg_params=dict(start),
            num_epoch=2,
            sparse_row_id_fn=rows,
        )
        assert len(pulled) >= STEPS
        assert max(pulled) < words
        weights = {name: array.asnumpy() for name, array in module.get_params()[0].items()}
        first = start["embedding_weight"].asnumpy()
        assert (weights["embedding_weight"][15:] == first[15:]).all()
        assert (weights["embedding_weight"][:15] != first[:15]).any()
        return weights

    compare(train, rtol=1e-5)


def buckets() -> None:
    def train(store: mx.kvstore.KVStore, who: "List[int]") -> Weights:
        def build(length: int) -> "tuple[mx.sym.Symbol, List[str], List[str]]":
            x = mx.sym.sum(mx.sym.Variable("data"), axis=1)  # over time
            x = mx.sym.FullyConnected(x, num_hidden=5, name="fc1")
            x = mx.sym.FullyConnected(x, num_hidden=3, name="fc2")
            return mx.sym.LinearRegressionOutput(x, mx.sym.Variable("label")), ["data"], ["label"]

        module = mx.mod.BucketingModule(build, default_bucket_key=4, context=contexts(who))
        size = BATCH * len(who)
        module.bind([("data", (size, 4, FEATURES))], [("label", (size, 3))])
        module.init_params(arg_params=initial(FC, who[0]))
        module.init_optimizer(store, "sgd", {"learning_rate": 0.05, "momentum": 0.9})
        for step, length in enumerate((4, 2, 3, 2, 4)):
            data = np.concatenate([inputs(worker)[step] for worker in who])
            data = np.repeat(data[:, np.newaxis], length, axis=1)
            batch = mx.io.DataBatch(
                [mx.nd.array(data)],
                [mx.nd.array(data[:, 0, :3])],
                bucket_key=length,
                provide_data=[("data", data.shape)],
                provide_label=[("label", (size, 3))],
            )
            module.forward_backward(batch)
            module.update()
        return {name: array.asnumpy() for name, array in module.get_params()[0].items()}

    compare(train, rtol=1e-6)


def run(cases: "List[str]") -> None:
    for case in cases:
        globals()[case]()
    print("well done")


if __name__ == "__main__":
    if sys.argv[1] == "native":
        keeper = mx.kv.create("bytescheduler")  # who closes the last store leaves the job
        run(sys.argv[2:])
    else:
        in_turn(sys.argv[2:], run)
