"""What a worker of a dist_async job does; ``async_cases.py NAME...`` runs cases, which assert.

On stock servers, too, where the store passes everything on.
"""

import pathlib
import sys
import threading
from typing import Callable, Dict, List, Tuple

import mxnet as mx
import numpy as np
from cases import expect, fails_with, full, open_store, read, run

from bytescheduler.mxnet import ScheduledKVS

O = mx.optimizer  # noqa: E741
COMMON = {"wd": 0.03, "clip_gradient": 0.9, "rescale_grad": 0.7}
OPTIMIZERS: "Dict[str, Callable[[], mx.optimizer.Optimizer]]" = {
    "sgd": lambda: O.SGD(learning_rate=0.1, **COMMON),
    "momentum": lambda: O.SGD(learning_rate=0.1, momentum=0.9, **COMMON),
    "nag": lambda: O.NAG(learning_rate=0.1, momentum=0.9, **COMMON),
    "adam": lambda: O.Adam(learning_rate=0.01, **COMMON),
    "adagrad": lambda: O.AdaGrad(learning_rate=0.1, **COMMON),
    "rmsprop": lambda: O.RMSProp(learning_rate=0.01, **COMMON),
    "centered": lambda: O.RMSProp(
        learning_rate=0.01, gamma1=0.95, gamma2=0.8, centered=True, clip_weights=1.5, **COMMON
    ),
    "ftrl": lambda: O.Ftrl(learning_rate=0.1, **COMMON),
    "signum": lambda: O.Signum(learning_rate=0.01, momentum=0.9, wd_lh=0.02, **COMMON),
    "signsgd": lambda: O.Signum(learning_rate=0.01, momentum=0.0, **COMMON),
    "scheduled": lambda: O.SGD(
        lr_scheduler=mx.lr_scheduler.FactorScheduler(step=7, factor=0.5, base_lr=0.3), **COMMON
    ),
    "half": lambda: O.SGD(learning_rate=0.1, momentum=0.9, multi_precision=True, **COMMON),
}
Floats = "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"
SHAPE, STEPS = (701, 3), 40  # several partitions of the smallest size
THRESHOLD = 0.125  # of two-bit compression


def change(optimizer: O.Optimizer, step: int) -> None:
    """Change what a script may change while it trains."""
    if step == 15 and optimizer.lr_scheduler is None:
        optimizer.set_learning_rate(0.03)
    if step == 20:
        optimizer.set_lr_mult({"weight": 0.5})
        optimizer.set_wd_mult({"weight": 2.0})
    if step == 25:
        optimizer.rescale_grad = 0.4


def compare(
    kvs: ScheduledKVS, name: str, make: "Callable[[], O.Optimizer]", *, late: bool = False
) -> None:
    """What the servers do is what the optimizer does here; `late`: set after the key is there."""
    random = np.random.RandomState(7)
    dtype = "float16" if name == "half" else "float32"
    start = mx.nd.array(random.randn(*SHAPE), dtype=dtype)
    here, there = make(), make()
    key = f"{name}-late" if late else name
    for optimizer in (here, there):
        optimizer.idx2name = {key: "weight"}
    out, want = mx.nd.zeros(SHAPE, dtype=dtype), start.copy()
    if not late:
        kvs.set_optimizer(there)
    kvs.broadcast(key, start, out=out)
    if late:
        kvs.set_optimizer(there)
    update = mx.optimizer.get_updater(here)
    for step in range(STEPS):
        # LARS scales its momentum when a rate changes, and cannot tell a multiplier from that.
        for optimizer in (here, there) if name != "lars" or step != 20 else ():
            change(optimizer, step)
        gradient = mx.nd.array(random.randn(*SHAPE), dtype=dtype)
        update(key, gradient.copy(), want)  # some change it
        if step % 3 == 0:
            kvs.push(key, gradient)
            kvs.pull(key, out=out)
        else:
            kvs.pushpull(key, gradient, out=out, priority=-step)
    tolerance = 2e-3 if dtype == "float16" else 2e-5
    difference = float(mx.nd.abs(out - want).max().asscalar())
    assert difference < tolerance, f"{key}: {difference}"
    moved = float(mx.nd.abs(out - start).max().asscalar())
    assert moved > 0.1, f"{key}: nothing was trained ({moved})"


def optimizers(kvs: ScheduledKVS) -> None:
    """One worker: what the servers do is what mx.optimizer does here."""
    for name, make in OPTIMIZERS.items():
        compare(kvs, name, make)


def adder() -> O.Optimizer:
    return O.SGD(learning_rate=-1.0, wd=0.0, rescale_grad=1.0)


def exact(kvs: ScheduledKVS) -> None:
    """Every push of everyone is in the final weights, once."""
    assert kvs.type == "dist_async"
    kvs.set_optimizer(adder())
    kvs.init([1, 2], [full(10 + kvs.rank), full(0, (5000,))])
    big = mx.nd.zeros((5000,))
    last = 10.0
    for step in range(30):
        kvs.push(1, full(1 + kvs.rank), priority=step)
        if step % 2:
            kvs.push(1, [full(1), full(1)])
        kvs.pushpull(2, full(1 + kvs.rank, (5000,)), out=big)
        now = read(kvs, 1)
        assert now >= last + 1 + kvs.rank, "its own push is not in what it pulls"
        last = now
    mx.nd.waitall()
    kvs.barrier()
    n = kvs.num_workers
    ranks = n * (n + 1) / 2
    assert read(kvs, 1) == 10 + 30 * ranks + 15 * 2 * n, "a pull without a push sees them all"
    kvs.pull(2, out=big)
    assert (big.asnumpy() == 30 * ranks).all()


def compressed(kvs: ScheduledKVS) -> None:
    """Two bits an element: what was sent is in the weights, once; the rest comes later."""
    kvs.set_gradient_compression({"type": "2bit", "threshold": THRESHOLD})
    kvs.set_optimizer(adder())
    kvs.barrier()
    kvs.init(1, mx.nd.ones(SHAPE))
    want = np.ones(SHAPE, np.float32)
    for rank in range(kvs.num_workers):
        random, residual = np.random.RandomState(rank), np.zeros(SHAPE, np.float32)
        for step in range(20):
            gradient = random.normal(0, 0.2, SHAPE).astype(np.float32)
            if rank == kvs.rank:
                kvs.push(1, mx.nd.array(gradient), priority=step)
                kvs.pull(1, out=mx.nd.zeros(SHAPE))
                mx.nd.waitall()  # stock servers mix up several requests of one key
            want += two_bits(gradient, residual)
    kvs.barrier()
    out = mx.nd.zeros(SHAPE)
    kvs.pull(1, out=out)
    np.testing.assert_array_equal(out.asnumpy(), want)  # sums of eighths, in any order


def coded(kvs: ScheduledKVS) -> None:
    """Half of the elements of each push: all whole numbers are in the weights in the end, once."""
    shape = (2 * 65536 + 300,)  # three units
    kvs.set_gradient_compression({"compressor": "topk", "k": 0.5, "ef": "vanilla"})
    kvs.set_optimizer(adder())
    kvs.barrier()
    kvs.init(30, mx.nd.zeros(shape))
    numbers = np.arange(shape[0]) % 101 - 50
    for step in range(4):
        kvs.push(30, mx.nd.array(numbers + step * kvs.rank), priority=step)
    for _ in range(2):  # what residuals hold
        kvs.push(30, mx.nd.zeros(shape))
    mx.nd.waitall()
    kvs.barrier()
    out = mx.nd.zeros(shape)
    kvs.pull(30, out=out)
    want = sum(4 * numbers + 6 * rank for rank in range(kvs.num_workers))
    np.testing.assert_array_equal(out.asnumpy(), want)


def two_bits(gradient: "Floats", residual: "Floats") -> "Floats":
    """Return what is sent of `gradient`; `residual` keeps the rest, and gives what it has."""
    residual += gradient
    sent = np.select(
        [residual >= THRESHOLD, residual <= -THRESHOLD], np.float32([THRESHOLD, -THRESHOLD])
    )
    residual -= sent
    return sent.astype(np.float32)


def only_rank_0_sets(kvs: ScheduledKVS) -> None:
    kvs.init("w", full(0))
    if kvs.rank == 0:
        kvs.set_optimizer(O.SGD(learning_rate=-2.0, wd=0.0))
    kvs.barrier()
    kvs.push("w", full(1))
    mx.nd.waitall()
    kvs.pull("w", out=full(0))
    mx.nd.waitall()
    kvs.barrier()
    assert read(kvs, "w") == 2 * kvs.num_workers
    kvs.barrier()


def gluon(kvs: ScheduledKVS) -> None:
    """A Trainer learns a line."""
    random = np.random.RandomState(kvs.rank)
    net = mx.gluon.nn.Dense(1, in_units=4)
    net.initialize(mx.init.Zero())
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05}, kvstore=kvs)
    loss = mx.gluon.loss.L2Loss()
    truth = mx.nd.array([[1.0], [-2.0], [0.5], [3.0]])
    losses: List[float] = []
    for step in range(150):
        images = mx.nd.array(random.randn(16, 4))
        labels = mx.nd.dot(images, truth) + 1
        with mx.autograd.record():
            value = loss(net(images), labels).mean()
        value.backward()
        trainer.step(1)
        losses.append(float(value.asscalar()))
        if step == 100:
            trainer.set_learning_rate(0.01)
    assert trainer._update_on_kvstore
    assert losses[-1] < 0.05 * losses[0], losses


def module(kvs: ScheduledKVS) -> None:
    """Module.fit learns it too, with names as keys."""
    random = np.random.RandomState(kvs.rank)
    images = random.randn(320, 4).astype("float32")
    labels = images @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")
    line = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(line, name="lin")
    data = mx.io.NDArrayIter(images, labels, 16, label_name="lin_label")
    model = mx.mod.Module(net, label_names=["lin_label"], context=mx.cpu())
    model.fit(
        data,
        eval_metric="mse",
        kvstore=kvs,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.05},
        num_epoch=8,
    )
    data.reset()
    assert dict(model.score(data, "mse"))["mse"] < 0.05


def no_optimizer(kvs: ScheduledKVS) -> None:
    kvs.init(3, full(1))
    with fails_with("no optimizer is set", "call set_optimizer"):
        for _ in range(100):
            kvs.push(3, full(1))
            kvs.pull(3, out=full(0))
            mx.nd.waitall()


def bad_input(kvs: ScheduledKVS) -> None:
    error = mx.base.MXNetError
    kvs.set_optimizer(adder())
    kvs.init(3, full(0))
    refused: List[Tuple[type, str, Callable[[], None]]] = [
        (error, "cannot update int32", lambda: kvs.init(4, full(1, dtype="int32"))),
        (error, "beta1=1.0 is out of range", lambda: kvs.set_optimizer(O.Adam(beta1=1.0))),
        (error, "duplicate init of key 3", lambda: kvs.init(3, full(1))),
        (AssertionError, "distributed", lambda: kvs.save_optimizer_states("states")),
        (AssertionError, "distributed", lambda: kvs.load_optimizer_states("states")),
    ]
    for kind, text, call in refused:
        expect(kind, text, call)
    kvs.push(3, full(2))
    assert read(kvs, 3) == 2


def bounded(kvs: ScheduledKVS) -> None:
    """With a bound of 2, rank 0 is never more than 2 pushes ahead of rank 1, who waits."""
    flags = [pathlib.Path(f"go-{index}") for index in range(2)]
    kvs.set_optimizer(adder())
    kvs.init("w", full(0))
    if kvs.rank == 1:
        for flag in flags:
            while not flag.exists():
                threading.Event().wait(0.02)
            kvs.push("w", full(100))
            mx.nd.waitall()
        return
    values: List[float] = []

    def train() -> None:
        for _ in range(6):
            out = full(0)
            kvs.pushpull("w", full(1), out=out)
            values.append(float(out.asnumpy()[0, 0]))

    thread = threading.Thread(target=train)
    thread.start()
    for index, flag in enumerate(flags):
        while len(values) < 2 + index and thread.is_alive():
            threading.Event().wait(0.02)
        thread.join(0.5)  # it would go on in this time if it did not wait
        assert len(values) == 2 + index, "it did not wait"
        flag.touch()
    thread.join()  # once rank 1 has left nobody waits for it
    assert values == [1, 2, 103, 204, 205, 206]


def rank_1_leaves(kvs: ScheduledKVS) -> None:
    kvs.set_optimizer(adder())
    kvs.init(9, full(0))
    kvs.push(9, full(1))
    mx.nd.waitall()
    kvs.barrier()
    if kvs.rank == 1:
        kvs.close()
        return
    for step in range(50):
        out = full(0)
        kvs.pushpull(9, full(1), out=out)
        assert (out.asnumpy() == kvs.num_workers + step + 1).all()


if __name__ == "__main__":
    run(open_store("dist_async"), globals(), sys.argv[1:])
