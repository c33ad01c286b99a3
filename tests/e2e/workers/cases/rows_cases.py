"""What a worker of a dist_async job does whose gradients are row_sparse."""

import sys
from typing import Callable, Dict, List

import mxnet as mx
import numpy as np
from cases import expect, full, open_store, run

from bytescheduler.mxnet import ScheduledKVS

O = mx.optimizer  # noqa: E741
SHAPE, STEPS = (40, 3), 12
COMMON = {"wd": 0.03, "rescale_grad": 0.7}
LAZY: "Dict[str, Callable[[], mx.optimizer.Optimizer]]" = {
    "sgd": lambda: O.SGD(learning_rate=0.1, lazy_update=True, **COMMON),
    "momentum": lambda: O.SGD(learning_rate=0.1, momentum=0.9, lazy_update=True, **COMMON),
    "adam": lambda: O.Adam(learning_rate=0.05, lazy_update=True, **COMMON),
    "adagrad": lambda: O.AdaGrad(learning_rate=0.1, rescale_grad=0.7),
    "ftrl": lambda: O.Ftrl(learning_rate=0.1, **COMMON),
    "group": lambda: O.contrib.GroupAdaGrad(learning_rate=0.1, rescale_grad=0.7),
}


def rows(values: np.ndarray, wanted: "List[int]") -> mx.nd.NDArray:
    if not wanted:
        return mx.nd.sparse.zeros("row_sparse", values.shape)
    array = mx.nd.sparse.row_sparse_array((values[wanted], wanted), shape=values.shape)
    assert array.indices.size == len(wanted)
    return array


def lazy(kvs: ScheduledKVS) -> None:
    """One worker: what the servers do to rows is what the optimizer does here."""
    for name, make in LAZY.items():
        for kind in ("row_sparse", "default"):
            compare(kvs, f"{name}_{kind}", make(), make(), kind)


def compare(kvs: ScheduledKVS, key: str, here: O.Optimizer, there: O.Optimizer, kind: str) -> None:
    random = np.random.RandomState(7)
    start = mx.nd.array(random.randn(*SHAPE))
    kvs.set_optimizer(there)
    kvs.init(key, start.tostype(kind))
    update, want = mx.optimizer.get_updater(here), start.tostype("row_sparse")
    out = mx.nd.sparse.zeros("row_sparse", SHAPE)
    for step in range(STEPS):
        wanted = sorted(random.choice(30, size=step % 5, replace=False).tolist())
        gradient = rows(random.randn(*SHAPE).astype(np.float32), wanted)
        update(key, gradient, want)
        kvs.push(key, [gradient] if step % 2 else gradient)
        ids = mx.nd.array(random.randint(0, 40, 6))
        kvs.row_sparse_pull(key, out=out, row_ids=ids)
        picked = sorted({int(i) for i in ids.asnumpy()})
        assert out.indices.asnumpy().tolist() == picked
        difference = np.abs(out.data.asnumpy() - want.asnumpy()[picked]).max()
        assert difference < 2e-5, f"{key}: {difference} in step {step}"
    dense = mx.nd.zeros(SHAPE)
    kvs.pull(key, out=dense)
    assert np.abs(dense.asnumpy() - want.asnumpy()).max() < 2e-5, key
    untouched = dense.asnumpy()[30:]
    assert (untouched == start.asnumpy()[30:]).all(), f"{key}: it touched other rows"
    assert np.abs(dense.asnumpy()[:30] - start.asnumpy()[:30]).max() > 0.05, f"{key}: it is idle"


def exact(kvs: ScheduledKVS) -> None:
    """Workers push different rows; each is in the weights once, and decay touches only those."""
    kvs.set_optimizer(O.SGD(learning_rate=-1.0, lazy_update=True))
    kvs.init([101, 102], [full(1, SHAPE).tostype("row_sparse"), full(1, SHAPE)])
    ones = np.ones(SHAPE, np.float32)
    for step in range(10):
        gradient = rows(ones, [kvs.rank, 5, 10 + step])
        two_devices = [gradient, rows(ones, [5])]
        kvs.push([101, 102], [gradient, two_devices], priority=step)
    mx.nd.waitall()
    kvs.barrier()
    n = kvs.num_workers
    want = np.ones(SHAPE[0])
    want[:n] += 10
    want[5] += 10 * n
    want[10:20] += n
    for key in (101, 102):
        out = mx.nd.zeros(SHAPE)
        kvs.pull(key, out=out)
        right = want + (10 * n * (np.arange(SHAPE[0]) == 5) if key == 102 else 0)
        assert (out.asnumpy() == right[:, None]).all(), (key, out)
    kvs.barrier()


def gluon(kvs: ScheduledKVS) -> None:
    learn(kvs, mx.gluon.nn.Embedding(20, 4, sparse_grad=True))


def gluon_row_sparse(kvs: ScheduledKVS) -> None:
    learn(kvs, mx.gluon.contrib.nn.SparseEmbedding(20, 4))


def learn(kvs: ScheduledKVS, embedding: mx.gluon.Block) -> None:
    """A Trainer learns an embedding with sparse gradients, of dense or of row_sparse weights."""
    net = mx.gluon.nn.Sequential()
    net.add(embedding, mx.gluon.nn.Dense(1))
    net.initialize(mx.init.Normal(0.5))
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02}, kvstore=kvs)
    random, loss = np.random.RandomState(kvs.rank), mx.gluon.loss.L2Loss()
    truth = mx.nd.arange(20) / 10
    losses: List[float] = []
    for _ in range(100):
        words = mx.nd.array(random.randint(0, 20, (16, 1)))
        with mx.autograd.record():
            value = loss(net(words), mx.nd.take(truth, words)).mean()
        value.backward()
        trainer.step(1)
        losses.append(float(value.asscalar()))
    assert np.mean(losses[-10:]) < 0.2 * np.mean(losses[:10]), losses


def bad_input(kvs: ScheduledKVS) -> None:
    error = mx.base.MXNetError
    kvs.set_optimizer(O.SGD(learning_rate=-1.0))
    kvs.init("bad", full(0))
    sparse = full(1).tostype("row_sparse")
    for text, call in (
        ("needs row_sparse", lambda: kvs.row_sparse_pull("bad", out=full(0), row_ids=full(0))),
        ("row 9 cannot", lambda: kvs.row_sparse_pull("bad", out=sparse, row_ids=full(9))),
        ("csr arrays are not supported", lambda: kvs.push("bad", full(1).tostype("csr"))),
    ):
        expect(error, text, call)
    kvs.push("bad", sparse)
    out = full(0)
    kvs.pull("bad", out=out)
    assert (out.asnumpy() == 1).all()


if __name__ == "__main__":
    run(open_store(sys.argv[1]), globals(), sys.argv[2:])
