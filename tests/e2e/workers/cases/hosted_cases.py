"""What a worker of a dist_async job does whose servers' Python makes the updates."""

import sys
from typing import Callable, Dict

import mxnet as mx
import my_optimizers
import numpy as np
from async_cases import COMMON, SHAPE, THRESHOLD, compare, two_bits
from cases import expect, fails_with, full, open_store, read, run

from bytescheduler.mxnet import ScheduledKVS

O = mx.optimizer  # noqa: E741
PLAIN = {"wd": 0.03, "rescale_grad": 0.7}
OPTIMIZERS: "Dict[str, Callable[[], mx.optimizer.Optimizer]]" = {
    "adadelta": lambda: O.AdaDelta(**COMMON),
    "adamax": lambda: O.Adamax(learning_rate=0.02, **COMMON),
    "nadam": lambda: O.Nadam(learning_rate=0.02, **COMMON),
    "dcasgd": lambda: O.DCASGD(learning_rate=0.05, **COMMON),
    "lamb": lambda: O.LAMB(learning_rate=0.02, **PLAIN),
    "lars": lambda: O.LARS(learning_rate=30.0, momentum=0.9, **PLAIN),
    "ftml": lambda: O.FTML(learning_rate=0.02, **COMMON),
    "lbsgd": lambda: O.LBSGD(learning_rate=0.05, momentum=0.9, **PLAIN),
    "half": lambda: O.LAMB(learning_rate=0.02, multi_precision=True, **PLAIN),
    "scheduled": lambda: O.Adamax(
        learning_rate=0.05,
        lr_scheduler=mx.lr_scheduler.FactorScheduler(step=7, factor=0.5),
        **COMMON,
    ),
}
TRUSTED: "Dict[str, Callable[[], mx.optimizer.Optimizer]]" = {
    "own": lambda: my_optimizers.Halfway(strength=2.0, learning_rate=0.05, **PLAIN),
}


def optimizers(kvs: ScheduledKVS) -> None:
    for name, make in OPTIMIZERS.items():
        compare(kvs, name, make)


def compressed(kvs: ScheduledKVS) -> None:
    """Python on the servers updates with what two bits an element say."""
    kvs.set_gradient_compression({"type": "2bit", "threshold": THRESHOLD})
    here = OPTIMIZERS["adamax"]()
    kvs.set_optimizer(OPTIMIZERS["adamax"]())
    update, want, out = mx.optimizer.get_updater(here), mx.nd.ones(SHAPE), mx.nd.zeros(SHAPE)
    kvs.init("compressed", want)
    random, residual = np.random.RandomState(7), np.zeros(SHAPE, np.float32)
    for _ in range(20):
        gradient = random.normal(0, 0.2, SHAPE).astype(np.float32)
        kvs.pushpull("compressed", mx.nd.array(gradient), out=out)
        update("compressed", mx.nd.array(two_bits(gradient, residual)), want)
    np.testing.assert_allclose(out.asnumpy(), want.asnumpy(), atol=2e-5)
    assert float(mx.nd.abs(out - 1).max().asscalar()) > 0.1


def trusted(kvs: ScheduledKVS) -> None:
    for name, make in TRUSTED.items():
        compare(kvs, name, make)


def noisy(kvs: ScheduledKVS) -> None:
    """The servers draw its random numbers, so it is told by its mean only."""
    kvs.set_optimizer(O.SGLD(learning_rate=0.01, wd=0))
    kvs.init("noisy", mx.nd.zeros((10_000,)))
    out = mx.nd.zeros((10_000,))
    for _ in range(10):
        kvs.pushpull("noisy", mx.nd.full((10_000,), -2.0), out=out)
    assert abs(float(out.mean().asscalar()) - 0.1) < 0.05
    assert 0.2 < float(out.norm().asscalar()) / 100 < 0.5


def late(kvs: ScheduledKVS) -> None:
    """The key was there before the optimizer; later ones are native, then Python's again."""
    compare(kvs, "nadam", OPTIMIZERS["nadam"], late=True)
    kvs.init("x", full(1))
    kvs.set_optimizer(O.SGD(learning_rate=-1.0))
    kvs.push("x", full(2))
    assert read(kvs, "x") == 3
    kvs.set_optimizer(O.Test(rescale_grad=2.0))
    kvs.push("x", full(2))
    assert read(kvs, "x") == 7


def exact(kvs: ScheduledKVS) -> None:
    """Every push of everyone is in the final weights, once."""
    kvs.set_optimizer(O.Test())
    kvs.init([1, 2], [full(10), full(0, (5000,))])
    for step in range(20):
        kvs.push([1, 2], [full(1 + kvs.rank), full(1, (5000,))], priority=step)
        if step % 4 == 0:
            assert read(kvs, 1) >= 10 + (step + 1) * (1 + kvs.rank)
    mx.nd.waitall()
    kvs.barrier()
    n = kvs.num_workers
    assert read(kvs, 1) == 10 + 20 * n * (n + 1) / 2
    big = mx.nd.zeros((5000,))
    kvs.pull(2, out=big)
    assert (big.asnumpy() == 20 * n).all()


def only_rank_0_sets(kvs: ScheduledKVS) -> None:
    kvs.init(5, full(0))
    if kvs.rank == 0:
        kvs.set_optimizer(O.Test(rescale_grad=3.0))
    kvs.barrier()
    kvs.push(5, full(1))
    mx.nd.waitall()
    kvs.barrier()
    assert read(kvs, 5) == 3 * kvs.num_workers
    kvs.barrier()


def refused(kvs: ScheduledKVS, optimizer: O.Optimizer, text: str) -> None:
    """It raises, and the job goes on with the optimizer before."""
    kvs.set_optimizer(O.SGD(learning_rate=-1.0))
    key = type(optimizer).__name__
    kvs.init(key, full(0))
    expect(mx.base.MXNetError, text, lambda: kvs.set_optimizer(optimizer))
    kvs.push(key, full(2))
    assert read(kvs, key) == 2


class Local(O.SGD):
    """A class that no server can import."""


def refused_class(kvs: ScheduledKVS) -> None:
    name = "the pickled optimizer names my_optimizers.Halfway, which servers do not load"
    refused(kvs, my_optimizers.Halfway(), name)


def refused_main(kvs: ScheduledKVS) -> None:
    refused(kvs, Local(), "the servers cannot import __main__.Local: put the class into a module")


def refused_altogether(kvs: ScheduledKVS) -> None:
    refused(kvs, O.LAMB(), "BYTESCHEDULER_PICKLES=refuse")


def cut(kvs: ScheduledKVS) -> None:
    """A key that was cut for a native optimizer cannot be updated as a whole."""
    kvs.set_optimizer(O.SGD(learning_rate=-1.0))
    kvs.init(3, full(0, (5000,)))
    kvs.set_optimizer(O.LAMB())
    failing(kvs, 3, full(1, (5000,)), "call set_optimizer before the key is initialised")


def stumbles(kvs: ScheduledKVS) -> None:
    kvs.set_optimizer(my_optimizers.Stumbling())
    kvs.init("fc", full(0))
    for step in range(2):
        kvs.push("fc", full(1))
        assert read(kvs, "fc") == step + 1
    failing(kvs, "fc", full(1), "the optimizer on the server: RuntimeError: three is too many")


def endless(kvs: ScheduledKVS) -> None:
    kvs.set_optimizer(my_optimizers.Endless())
    kvs.init("fc", full(0))
    failing(kvs, "fc", full(1), "server 0 was ended: it got SIGTERM")


def failing(kvs: ScheduledKVS, key: object, gradient: mx.nd.NDArray, text: str) -> None:
    with fails_with(text):
        kvs.push(key, gradient)
        kvs.pull(key, out=mx.nd.zeros(gradient.shape))
        mx.nd.waitall()


if __name__ == "__main__":
    run(open_store("dist_async"), globals(), sys.argv[1:])
