"""Workers of which only some set an optimizer; ``one_optimizer.py STORE CASE`` runs one case."""

import os
import sys
import time

import mxnet as mx
import numpy as np
from cases import fails_with

from bytescheduler.mxnet import ScheduledKVS, ScheduledTrainer

SHAPE = (3, 4)


@mx.optimizer.register
class Halving(mx.optimizer.Optimizer):
    """An optimizer of the user's, known to every worker by its name."""

    def __init__(self, depth: int = 1, **options: object) -> None:
        super().__init__(**options)
        self.depth = depth

    def create_state(self, index: object, weight: mx.nd.NDArray) -> mx.nd.NDArray:
        return mx.nd.zeros(weight.shape)

    def update(
        self, index: object, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: mx.nd.NDArray
    ) -> None:
        self._update_count(index)
        state[:] = state / 2**self.depth + grad
        weight[:] -= self._get_lr(index) * state


class Unregistered(mx.optimizer.SGD):
    """Nobody can make it by its name."""


def gradient(rank: int, step: int) -> mx.nd.NDArray:
    return mx.nd.array(np.random.RandomState(10 * step + rank).uniform(-1, 1, SHAPE))


def train(kvs: mx.kvstore.KVStore, key: str, first_step: int) -> "np.ndarray":
    """Three steps; a local store pushes what all of the job's workers push."""
    out = mx.nd.zeros(SHAPE)
    for step in range(first_step, first_step + 3):
        ranks = [kvs.rank] if "dist" in kvs.type else range(int(os.environ["DMLC_NUM_WORKER"]))
        kvs.push(key, [gradient(rank, step) for rank in ranks])
        kvs.pull(key, out=out)
    return out.asnumpy()


def optimizers() -> "list[mx.optimizer.Optimizer]":
    scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
    names = {0: "early", 1: "late"}
    sgd = mx.optimizer.SGD(learning_rate=0.5, momentum=0.9, wd=0.1, param_idx2name=names)
    sgd.set_lr_mult({"late": 0.25})
    adam = mx.optimizer.Adam(learning_rate=0.5, beta1=np.float32(0.5), lr_scheduler=scheduler)
    return [sgd, adam, Halving(depth=2, learning_rate=0.5)]


def rank_0_alone(kvs: ScheduledKVS) -> None:
    """As one process that pushes everyone's gradients; whichever optimizer was the last."""
    alone = mx.kv.create("local")
    kvs._barrier()
    for each in (kvs, alone):
        each.init("early", mx.nd.ones(SHAPE))
    for turn, (ours, theirs) in enumerate(zip(optimizers(), optimizers())):
        if kvs.rank == 0:
            kvs.set_optimizer(ours)
        kvs._barrier()
        alone.set_optimizer(theirs)
        for each in (kvs, alone) if turn == 0 else ():
            each.init("late", mx.nd.ones(SHAPE))
        for key in ("early", "late"):
            np.testing.assert_array_equal(train(kvs, key, turn), train(alone, key, turn))
    if kvs.rank == 1:  # the learning rate is what all agree on, whoever set it last
        kvs.set_optimizer(mx.optimizer.SGD(learning_rate=0.0))
    kvs._barrier()
    assert kvs._updater.optimizer.learning_rate == 0.0
    before = train(kvs, "early", 1)
    assert (train(kvs, "early", 2) == before).all()
    half_precision(kvs)


def half_precision(kvs: ScheduledKVS) -> None:
    """Keys that are there are summed and updated in float32 from then on, on every worker."""
    kvs.init("half", mx.nd.ones(SHAPE, dtype="float16"))
    if kvs.rank == 0:
        options = {"learning_rate": 1, "rescale_grad": 1.0, "multi_precision": True}
        kvs.set_optimizer(mx.optimizer.SGD(**options))
    out = mx.nd.zeros(SHAPE)
    kvs.pull("half", out=out)  # of one worker alone it would do as well
    assert (out.asnumpy() == 1).all()
    kvs._barrier()
    kvs.init("late half", mx.nd.ones(SHAPE, dtype="float16"))
    for key in ("half", "late half"):
        for _ in range(8):
            small = mx.nd.full(SHAPE, -(2.0**-13), dtype="float16")  # lost, in float16 beside 1
            kvs.push(key, small)
        kvs.pull(key, out=out)
        assert (out.asnumpy() == 1 + kvs.num_workers * 2.0**-10).all()


def said_everywhere(kvs: ScheduledKVS, text: str) -> None:
    """Push until it is refused; the job has failed."""
    out = mx.nd.zeros(SHAPE)
    with fails_with(text):
        for _ in range(100):
            kvs.pushpull("early", mx.nd.ones(SHAPE), out=out)
            out.wait_to_read()


def without_a_barrier(kvs: ScheduledKVS) -> None:
    kvs.init("early", mx.nd.ones(SHAPE))
    if kvs.rank == 0:
        kvs.set_optimizer(optimizers()[0])
    said_everywhere(kvs, "worker 0 has set an optimizer that worker 1 does not have: call")


def half_without_a_barrier(kvs: ScheduledKVS) -> None:
    """Rank 0 alone changes what the keys travel in, and would wait for the other for ever."""
    kvs.init("early", mx.nd.ones(SHAPE, dtype="float16"))
    if kvs.rank == 0:
        kvs.set_optimizer(mx.optimizer.SGD(multi_precision=True))
    with fails_with("worker 0 has set an optimizer that worker 1 does not have: call"):
        kvs.push("early", mx.nd.ones(SHAPE, dtype="float16"))
        for _ in range(6000):
            time.sleep(0.01)
            kvs.rank  # noqa: B018 - as any call, raises what is known by now


def without_a_barrier_in_one_step(kvs: ScheduledKVS) -> None:
    """Nobody calls again after the step; the end of the process tells."""
    kvs.init("early", mx.nd.ones(SHAPE))
    if kvs.rank == 0:
        kvs.set_optimizer(optimizers()[0])
    value = mx.nd.ones(SHAPE)
    kvs.pushpull("early", value)


_OTHER_NUMBERS = "in learning rate, weight decay, momentum or rescale_grad"


def other_batch_sizes(kvs: ScheduledKVS) -> None:
    kvs.init("early", mx.nd.ones(SHAPE))
    kvs.set_optimizer(mx.optimizer.SGD(rescale_grad=1 / (8 if kvs.rank == 0 else 4)))
    said_everywhere(kvs, _OTHER_NUMBERS)


def one_short_batch(kvs: ScheduledKVS) -> None:
    """One worker's third batch is shorter than the other's; afterwards all is as it was."""
    kvs.init("early", mx.nd.ones(SHAPE))
    optimizer = mx.optimizer.SGD(rescale_grad=1 / 8)
    kvs.set_optimizer(optimizer)
    for step in range(4):
        optimizer.rescale_grad = 1 / 3 if step == 2 and kvs.rank == 1 else 1 / 8
        kvs.push("early", mx.nd.ones(SHAPE))
    said_everywhere(kvs, _OTHER_NUMBERS)


# By step, of each worker.
BATCHES = ((6, 2), (6, 2), (5, 2), (6, 1), (3, 3))


def _weights_alone() -> "np.ndarray":
    """Return what one process makes of all gradients, each divided by its worker's batch size."""
    weight, momentum = mx.nd.ones(SHAPE), mx.nd.zeros(SHAPE)
    optimizer = mx.optimizer.SGD(learning_rate=0.5, momentum=0.5)
    for step, sizes in enumerate(BATCHES):
        total = sum(gradient(rank, step) / size for rank, size in enumerate(sizes))
        optimizer.update(0, weight, total, momentum)
    return weight.asnumpy()


def own_batch_sizes(kvs: ScheduledKVS) -> None:
    """Workers whose batches are of other sizes, in every step or in one, count each its own."""
    for make in (mx.gluon.Trainer, ScheduledTrainer):
        sizes = BATCHES[:2] if make is mx.gluon.Trainer else BATCHES  # Gluon's refuses a change
        weight = mx.gluon.Parameter("weight", shape=SHAPE)
        weight.initialize(mx.init.One())
        options = {"learning_rate": 0.5, "momentum": 0.5}
        store = ScheduledKVS() if make is ScheduledTrainer else kvs
        trainer = make([weight], "sgd", options, kvstore=store, update_on_kvstore=True)
        for step, mine in enumerate(sizes):
            with mx.autograd.record():
                loss = (weight.data() * gradient(kvs.rank, step)).sum()
            loss.backward()
            trainer.step(mine[kvs.rank])
            assert trainer._optimizer.rescale_grad == 1 / mine[kvs.rank]
        if make is ScheduledTrainer:
            np.testing.assert_allclose(weight.data().asnumpy(), _weights_alone(), rtol=1e-5)
            store.close()
        digest = weight.data().asnumpy().astype("float64")
        same = mx.nd.zeros(SHAPE, dtype="float64")
        key = f"weights of {make.__name__}"
        with ScheduledKVS() as other:
            other.init(key, same)
            other.pushpull(key, mx.nd.array(digest, dtype="float64"), out=same)
            np.testing.assert_array_equal(same.asnumpy(), 2 * digest)


def states_of_one(kvs: ScheduledKVS) -> None:
    """Rank 0 alone goes back to older states, and would update with another momentum."""
    kvs.init("early", mx.nd.ones(SHAPE))
    kvs.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    file = f"{kvs.rank}.states"
    for step in range(4):
        kvs.push("early", mx.nd.ones(SHAPE))
        if step == 0:
            kvs.save_optimizer_states(file)
    if kvs.rank == 0:
        kvs.load_optimizer_states(file)
    said_everywhere(kvs, "states were loaded on one only")


def momentum_of_one(kvs: ScheduledKVS) -> None:
    """Behind five pushes rank 0 alone asks for it, and no sum of the sixth arrives."""
    kvs.init("early", mx.nd.ones(SHAPE))
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.9))
    out = mx.nd.zeros(SHAPE)
    for _ in range(5):
        kvs.push("early", mx.nd.ones(SHAPE))
    kvs.pull("early", out=out)
    out.wait_to_read()
    with fails_with(
        "worker 0 pushes is not compressed, with the optimizer's momentum, from push 6 on, and "
        "worker 1 has not set that, so what it pushes is not compressed"
    ):
        if kvs.rank == 0:
            kvs.set_gradient_compression({"momentum": "nesterov"})
        kvs.push("early", mx.nd.ones(SHAPE))
        kvs.pull("early", out=out)
        out.wait_to_read()


def noise_of_its_own(kvs: ScheduledKVS) -> None:
    try:
        kvs.set_optimizer(mx.optimizer.SGLD())
    except mx.base.MXNetError as error:
        assert "SGLD draws random numbers" in str(error)  # noqa: PT017
    else:
        raise AssertionError("nothing was raised")
    kvs.init("early", mx.nd.ones(SHAPE))
    kvs.set_optimizer(mx.optimizer.SGD())
    train(kvs, "early", 0)


def pushed_too_early(kvs: ScheduledKVS) -> None:
    kvs.init("early", mx.nd.ones(SHAPE))
    train(kvs, "early", 0)
    if kvs.rank == 0:
        kvs.set_optimizer(optimizers()[0])
    kvs.push("early", gradient(kvs.rank, 0))  # the fourth, which is looked at too
    kvs._barrier()


def unregistered(kvs: ScheduledKVS) -> None:
    if kvs.rank == 0:
        kvs.set_optimizer(Unregistered())
    kvs._barrier()


def main() -> None:
    """Not at the top: MXNet keeps this module, and a stock store that outlives it aborts."""
    kvs = ScheduledKVS(None if sys.argv[1] == "native" else mx.kv.create(sys.argv[1]))
    globals()[sys.argv[2]](kvs)
    print("well done")


if __name__ == "__main__":
    main()
