"""Steps of AMP that overflow on some workers; ``amp.py STORE CASE`` runs one case."""

import sys

import mxnet as mx
import numpy as np
from cases import fails_with
from mxnet import autograd, gluon
from mxnet.contrib import amp

from bytescheduler.mxnet import ScheduledKVS, ScheduledTrainer

BATCH = 8
STEPS = 10
# Which workers overflow in which steps.
OVERFLOWS = {2: (1,), 3: (0,), 6: (0, 1)}
WORDS = 4


class Model:
    """A net whose gradients are its inputs, so that sums over workers are exact."""

    def __init__(self, kind: str) -> None:
        self._dtype = "float16" if kind == "half" else "float32"
        self._words = kind != "dense"  # a CPU multiplies no float16 matrices
        if self._words:
            self.net = gluon.nn.Embedding(WORDS, 3, sparse_grad=kind == "sparse")
        else:
            self.net = gluon.nn.Dense(2, in_units=WORDS)
        self.net.cast(self._dtype)
        self.net.initialize(mx.init.One())

    def loss(
        self, step: int, ranks: "tuple[int, ...]", *, overflows: bool = False
    ) -> mx.nd.NDArray:
        """Return what the workers of these ranks sum up to."""
        total = 0
        for rank in ranks:
            factor = float("inf") if overflows else 1.0
            if self._words:
                words = mx.nd.array([(step + rank) % WORDS, rank])
                total = total + (self.net(words) * factor).sum()
            else:
                x = (np.arange(WORDS) + step + rank) * factor
                total = total + self.net(mx.nd.array(x.reshape(1, WORDS), dtype=self._dtype)).sum()
        return total

    def weights(self) -> "list[np.ndarray]":
        return [each.data().asnumpy() for each in self.net.collect_params().values()]


def options(kind: str) -> "dict[str, object]":
    return {"learning_rate": 0.5, "momentum": 0.5, "multi_precision": kind == "half"}


def alone(kind: str) -> "list[np.ndarray]":
    """Return the weights of one process without AMP that trains the other steps."""
    model = Model(kind)
    params = model.net.collect_params()
    trainer = gluon.Trainer(params, "sgd", options(kind), kvstore=None)
    for step in range(STEPS):
        if step in OVERFLOWS:
            continue
        with autograd.record():
            loss = model.loss(step, (0, 1))
        loss.backward()
        trainer.step(BATCH)
    return model.weights()


def scaled_step(model: Model, trainer: gluon.Trainer, step: int, rank: int) -> None:
    with autograd.record():
        loss = model.loss(step, (rank,), overflows=rank in OVERFLOWS.get(step, ()))
        with amp.scale_loss(loss, trainer) as scaled:
            autograd.backward(scaled)
    trainer.step(BATCH)


def new_trainer(
    kind: str, make: type, kvs: mx.kvstore.KVStore, **how: object
) -> "tuple[Model, gluon.Trainer]":
    model = Model(kind)
    trainer = make(model.net.collect_params(), "sgd", options(kind), kvstore=kvs, **how)
    amp.init_trainer(trainer)
    trainer._amp_loss_scaler._loss_scale = trainer._amp_loss_scaler._next_loss_scale = 2.0**9
    return model, trainer


def skipped(
    kvs: ScheduledKVS, kind: str, make: type, on_store: "bool | None", **how: object
) -> None:
    model, trainer = new_trainer(kind, make, kvs, update_on_kvstore=on_store, **how)
    for step in range(STEPS):
        scaled_step(model, trainer, step, kvs.rank)
    for got, want in zip(model.weights(), alone(kind)):
        np.testing.assert_array_equal(got, want, f"{kind} {make.__name__} {on_store}")
    # What workers decided differently would differ now; the same follows from both.
    assert trainer._amp_loss_scaler.loss_scale == 2.0**9 / 2 ** len(OVERFLOWS)


def every_way(kvs: ScheduledKVS) -> None:
    kinds = [("dense", None), ("dense", False), ("dense", True), ("half", True), ("sparse", None)]
    for make in (gluon.Trainer, ScheduledTrainer):
        for kind, on_store in kinds:
            with ScheduledKVS() as other:
                skipped(other, kind, make, on_store)


def coded(kvs: ScheduledKVS) -> None:
    """Train with codes that have these gradients exactly."""
    for compressor in ("bf16", "fp16"):
        params = {"compressor": compressor}
        for kind in ("dense", "half"):
            with ScheduledKVS() as other:
                skipped(other, kind, gluon.Trainer, None, compression_params=params)
        with ScheduledKVS() as other:  # so small tensors are coded
            other.set_gradient_compression(params)
            out = mx.nd.zeros(WORDS)
            other.init(0, out)
            other.pushpull(0, mx.nd.full(WORDS, 1 + 2.0**-12), out=out)
            assert (out.asnumpy() == other.num_workers).all(), out


def signed(kvs: ScheduledKVS) -> None:
    """Residuals are finite behind a step that overflows."""
    onebit = {"compressor": "onebit", "scaling": True, "ef": "corrected"}
    how = {"update_on_kvstore": True, "compression_params": onebit}
    with ScheduledKVS() as other:
        model, trainer = new_trainer("dense", gluon.Trainer, other, **how)
        for step in range(STEPS):
            scaled_step(model, trainer, step, kvs.rank)
        assert all(np.isfinite(weights).all() for weights in model.weights())
        assert trainer._amp_loss_scaler.loss_scale == 2.0**9 / 2 ** len(OVERFLOWS)


def on_the_store(kvs: ScheduledKVS) -> None:
    skipped(kvs, "dense", gluon.Trainer, True)


def refused(kvs: ScheduledKVS, text: str, **how: object) -> None:
    model, trainer = new_trainer("dense", gluon.Trainer, kvs, **how)
    with fails_with(text):
        scaled_step(model, trainer, 0, kvs.rank)


def asynchronous(kvs: ScheduledKVS) -> None:
    refused(kvs, "AMP's loss scaling does not go with a dist_async store")


def compressed(kvs: ScheduledKVS) -> None:
    how = {"compression_params": {"type": "2bit"}, "update_on_kvstore": False}
    refused(kvs, "AMP's loss scaling does not go with gradient compression", **how)


amp.init(target_precision_ops=[])  # the loss scaling is the point
store, case = sys.argv[1:]
given = ScheduledKVS(None if store == "native" else mx.kv.create(store))
globals()[case](given)
given.close()
print("well done")
