"""What a worker of a test's job does; ``cases.py STORE CASE...`` runs cases, which assert.

``cases.py STORE CASE+CASE=PORT...`` does so in several jobs, one after the other.
"""

import contextlib
import os
import pathlib
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List

import mxnet as mx
import numpy as np
from children import in_turn

from bytescheduler.mxnet import ScheduledKVS
from bytescheduler.mxnet._stores import agreement

Array = mx.nd.NDArray
SHAPE = (3, 5)


def open_store(kind: str) -> ScheduledKVS:
    """Return a store that wraps nothing ("native") or a stock store ("dist_sync")."""
    return ScheduledKVS(None if kind == "native" else mx.kv.create(kind))


def full(value: float, shape: "tuple[int, ...]" = SHAPE, dtype: str = "float32") -> Array:
    return mx.nd.full(shape, value, dtype=dtype)


def read(kvs: ScheduledKVS, key: "int | str", dtype: str = "float32") -> float:
    """Return the value of a key whose elements are all equal."""
    out = mx.nd.zeros(SHAPE, dtype=dtype)
    kvs.pull(key, out=out)
    values = set(out.asnumpy().ravel().tolist())
    assert len(values) == 1, values
    return float(values.pop())


def expect(kind: type, text: str, call: "Callable[[], object]") -> None:
    """Assert that `call` raises `kind` with `text` in its words, and that the job goes on."""
    try:
        call()
    except kind as caught:
        assert text in str(caught), caught  # noqa: PT017
    else:
        raise AssertionError(f"nothing was raised, want {text!r}")


@contextlib.contextmanager
def fails_with(*texts: str) -> Iterator[None]:
    """Assert that MXNet raises in here, with all of `texts`; the error goes on, the job ends."""
    try:
        yield
    except mx.base.MXNetError as error:
        for text in texts:
            assert text in str(error), error  # noqa: PT017
        print("refused as it should", flush=True)
        raise
    raise AssertionError("nothing was raised")


def run(store: ScheduledKVS, cases: "Dict[str, object]", names: "List[str]") -> None:
    """Run the functions of these names, one after the other."""
    for name in names:
        cases[name](store)  # type: ignore[operator]
    print("well done")


def sum_over_workers(kvs: ScheduledKVS, f: "Callable[[int], float]") -> float:
    return float(sum(f(rank) for rank in range(kvs.num_workers)))


def identity(kvs: ScheduledKVS) -> None:
    assert isinstance(kvs, mx.kvstore.KVStore)
    assert kvs.type == "dist_sync"
    assert kvs.is_capable("optimizer")
    assert kvs
    assert kvs._updater is None
    assert not kvs._is_p3
    kvs._send_command_to_servers(5, "")
    assert kvs._inner is None or kvs._inner.rank == kvs.rank
    print(f"rank {kvs.rank} of {kvs.num_workers}")


def barriers(kvs: ScheduledKVS) -> None:
    """Rank 0 comes first, and goes on only when the others are there."""
    for name, meet in (("first", kvs.barrier), ("second", kvs._barrier)):
        there = pathlib.Path(f"{name}-{kvs.rank}")
        if kvs.rank > 0:
            time.sleep(0.3)
            there.touch()
        meet()
        for rank in range(1, kvs.num_workers):
            assert pathlib.Path(f"{name}-{rank}").exists(), f"{name} barrier: rank {rank} is late"


def partitions(kvs: ScheduledKVS) -> None:
    """Tensors that may be cut anew behind their first round; 6 MiB, which tell of the link."""
    weights = [mx.nd.full((1 << 19,), 10 * key + kvs.rank) for key in range(3)]
    for key, weight in enumerate(weights):
        kvs.broadcast(key, weight, out=weight)
        assert (weight.asnumpy() == 10 * key).all()
    for step in range(3):
        for key, weight in enumerate(weights):
            grad = mx.nd.full(weight.shape, key + step + kvs.rank)
            kvs.pushpull(key, grad, out=weight, priority=-key)
        for key, weight in enumerate(weights):
            expected = sum_over_workers(kvs, lambda rank, n=key + step: n + rank)
            assert (weight.asnumpy() == expected).all(), (key, step)


def sums(kvs: ScheduledKVS) -> None:
    rank, n = kvs.rank, kvs.num_workers
    # Everyone starts from rank 0's values, and pull before push gives them.
    kvs.init(3, full(10 + rank))
    assert read(kvs, 3) == 10
    kvs.init([5, 4], [full(50 + rank), full(40 + rank)])
    assert (read(kvs, 4), read(kvs, 5)) == (40, 50)
    out = [mx.nd.zeros(SHAPE), mx.nd.zeros(SHAPE)]
    kvs.broadcast(6, full(60 + rank), out=out)
    assert all((array.asnumpy() == 60).all() for array in out)

    # A sum is this round's, over workers and devices.
    for step in range(3):
        kvs.push(3, full(step + rank), priority=-3)
        assert read(kvs, 3) == sum_over_workers(kvs, lambda r: step + r)  # noqa: B023
    kvs.push(3, [full(1), full(rank), full(2)])
    assert read(kvs, 3) == sum_over_workers(kvs, lambda r: 3 + r)

    # In place; into other arrays; list of lists; another order on each worker.
    value = full(rank)
    kvs.pushpull(4, value, priority=7)
    assert (value.asnumpy() == n * (n - 1) / 2).all()
    keys = [3, 4, 5] if rank % 2 else [5, 3, 4]
    outs = [[mx.nd.zeros(SHAPE), mx.nd.zeros(SHAPE)] for _ in keys]
    kvs.pushpull(keys, [[full(key), full(1)] for key in keys], out=outs)
    for key, arrays in zip(keys, outs):
        assert all((array.asnumpy() == n * (key + 1)).all() for array in arrays)


def order(kvs: ScheduledKVS) -> None:
    n = kvs.num_workers
    kvs.init(20, full(7))
    # Nothing here waits, and each pull sees exactly the pushes before it.
    outs = [mx.nd.zeros(SHAPE) for _ in range(30)]
    value = full(0)
    kvs.pull(20, out=outs[0])
    for step in range(1, 30):
        value[:] = step
        kvs.push(20, value)
        if step % 3 == 0:
            kvs.push(20, value)
        value[:] = -1  # what was pushed is the value as of the call
        kvs.pull(20, out=outs[step])
    assert [out.asnumpy()[0, 0] for out in outs] == [7.0] + [float(n * s) for s in range(1, 30)]


def in_place(kvs: ScheduledKVS) -> None:
    # Large enough to be sent from where they lie, in several partitions; nothing waits.
    shape = (100_000,)
    kvs.init(22, full(0, shape))
    value, outs = full(0, shape), [full(0, shape) for _ in range(10)]
    for step, out in enumerate(outs):
        value[:] = step + kvs.rank
        kvs.pushpull(22, value, out=out, priority=-step)
        value[:] = -1
    for step, out in enumerate(outs):
        assert (out.asnumpy() == sum_over_workers(kvs, lambda r: step + r)).all()  # noqa: B023
    kvs.pushpull(22, outs[1])
    assert (outs[1].asnumpy() == kvs.num_workers * sum_over_workers(kvs, lambda r: 1 + r)).all()


def noted(kvs: ScheduledKVS) -> None:
    """What the workers compare between pushes goes behind every push, and disturbs none."""
    agreement._ROUNDS_A_NOTE = 1
    kvs.init(21, full(0))
    for step in range(500):
        kvs.push(21, full(step + kvs.rank))
    assert read(kvs, 21) == sum_over_workers(kvs, lambda r: 499 + r)


def names(kvs: ScheduledKVS) -> None:
    keys = ["conv0_weight", "fc_bias", "\N{GREEK SMALL LETTER BETA}"]
    kvs.init(keys, [full(index) for index in range(3)])
    assert [read(kvs, key) for key in keys] == [0, 1, 2]
    for key in reversed(keys) if kvs.rank else keys:
        kvs.push(key, full(1), -1)
    assert [read(kvs, key) for key in keys] == [float(kvs.num_workers)] * 3


def dtypes(kvs: ScheduledKVS) -> None:
    for key, dtype in enumerate(
        ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")
    ):
        kvs.init(key, full(1, dtype=dtype))
        kvs.push(key, full(2 + kvs.rank, dtype=dtype))
        want = sum_over_workers(kvs, lambda r: 2 + r)
        assert read(kvs, key, dtype) == want
        assert read(kvs, key) == want  # pull casts


def floats(kvs: ScheduledKVS) -> None:
    """What stock servers can sum; the rest is refused before anything is sent."""
    for key, dtype in enumerate(("float32", "float64", "float16")):
        kvs.init(key, full(1, dtype=dtype))
        kvs.push(key, full(2 + kvs.rank, dtype=dtype))
        assert read(kvs, key, dtype) == sum_over_workers(kvs, lambda r: 2 + r)
    try:
        kvs.init(9, full(1, dtype="int32"))
    except mx.base.MXNetError as error:
        assert "key 9: stock servers cannot sum int32" in str(error)  # noqa: PT017
    else:
        raise AssertionError("int32 was taken")


def profiled(kvs: ScheduledKVS) -> None:
    """What MXNet's profiler asks of the servers reaches them, and harms nobody else's work."""
    mx.profiler.set_kvstore_handle(kvs.handle)
    where = {"profile_process": "server"}
    mx.profiler.set_config(filename="servers.json", profile_all=True, **where)
    kvs.init(90, full(1))

    def push_and_read() -> None:
        for step in range(3):
            kvs.push(90, full(step))
            assert read(kvs, 90) == step * kvs.num_workers
        kvs._barrier()

    def everywhere(command: "Callable[..., object]", *arguments: str) -> None:
        command(*arguments, **where)  # by rank 0; MXNet's others send none
        kvs._barrier()

    everywhere(mx.profiler.set_state, "run")
    push_and_read()
    everywhere(mx.profiler.pause)
    push_and_read()
    everywhere(mx.profiler.resume)
    everywhere(mx.profiler.set_state, "stop")
    everywhere(lambda **there: mx.profiler.dump(finished=True, **there))


def opposite_orders(kvs: ScheduledKVS) -> None:
    """Each worker spends its credit on another key; both must go on.  On stock servers."""
    refused = "stock servers know nothing of it"
    expect(mx.base.MXNetError, refused, lambda: kvs.retune(4096, 10_000))
    n, shape = kvs.num_workers, (50000,)
    kvs.init([10, 11], [full(0, shape), full(0, shape)])
    for step in range(5):
        outs = [mx.nd.zeros(shape), mx.nd.zeros(shape)]
        for index in (0, 1) if kvs.rank else (1, 0):
            # Equal priorities: each worker sends first what it has first.
            kvs.pushpull(10 + index, full(step + index, shape), out=outs[index])
        assert [set(out.asnumpy().tolist()) for out in outs] == [{n * step}, {n * (step + 1)}]


def another_order_of_init(kvs: ScheduledKVS) -> None:
    keys = ["a", "b"] if kvs.rank == 0 else ["b", "a"]
    try:
        kvs.init(keys, [full(1), full(2)])
        kvs.barrier()
    except mx.base.MXNetError as error:
        print("said:", error)
        raise


def until_the_test_is_done() -> None:
    """Be alive and do nothing until the test writes ``done``; then end at once."""
    done = pathlib.Path("done")
    while not done.exists():
        threading.Event().wait(0.02)
    os._exit(0)


def silent_in_rank_1(kvs: ScheduledKVS) -> None:
    """Rank 1 is alive and pushes nothing."""
    kvs.init("weight", full(0))
    if kvs.rank == 1:
        until_the_test_is_done()
    out = full(0)
    kvs.pushpull("weight", full(1), out=out)
    out.wait_to_read()


def compresses_in_rank_0_only(kvs: ScheduledKVS) -> None:
    """Rank 1 is alive and goes another way, until the other has given up."""
    kvs.init("weight", full(0))
    if kvs.rank == 1:
        until_the_test_is_done()
    kvs.set_gradient_compression({"type": "2bit"})


def shapes(kvs: ScheduledKVS) -> None:
    for key, shape in enumerate([(1,), (7, 3, 2), (1500001,), (64, 1, 3, 3)], 100):
        value = mx.nd.random.uniform(shape=shape)
        kvs.init(key, value)
        want = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        out = mx.nd.zeros(shape)
        kvs.pushpull(key, mx.nd.array(want), out=out)
        assert (out.asnumpy() == want * kvs.num_workers).all()


def numpy_shapes(kvs: ScheduledKVS) -> None:
    """Scalars and arrays without elements, which only MXNet's NumPy way has; an optimizer too."""
    n = kvs.num_workers
    with mx.np_shape():

        def arrays(value: float) -> "List[Array]":
            return [mx.np.full((0, 4), value), mx.np.array(value), mx.nd.full((3,), value)]

        def seen(outs: "List[Array]") -> "List[List[float]]":
            assert [out.shape for out in outs] == [(0, 4), (), (3,)]
            return [out.asnumpy().ravel().tolist() for out in outs]

        keys, outs = [200, 201, 202], arrays(0)
        kvs.init(keys, arrays(5 + kvs.rank))
        kvs.pull(keys, out=outs)
        assert seen(outs) == [[], [5], [5] * 3]
        kvs.broadcast([203, 204, 205], arrays(7 + kvs.rank), out=outs)
        assert seen(outs) == [[], [7], [7] * 3]
        kvs.pushpull(keys, arrays(2), out=outs)
        assert seen(outs) == [[], [2 * n], [2 * n] * 3]
        kvs.push(keys, [[array, array] for array in arrays(1)])  # two devices
        kvs.pull(keys, out=outs)
        assert seen(outs) == [[], [2 * n], [2 * n] * 3]
        kvs.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5, rescale_grad=1.0))
        for want in (n, -0.5 * n):
            kvs.pushpull(keys, arrays(1), out=outs)
            assert seen(outs) == [[], [want], [want] * 3]


def sparse(kvs: ScheduledKVS) -> None:
    """Workers push different rows, or none; what comes back is right for each of its forms."""
    rank, n, shape = kvs.rank, kvs.num_workers, (6, 3)
    out = mx.nd.sparse.zeros("row_sparse", shape)
    everything = mx.nd.arange(6)

    def rows(wanted: "List[int]", value: float) -> Array:
        if not wanted:
            return mx.nd.sparse.zeros("row_sparse", shape)
        data = np.full((len(wanted), 3), value, np.float32)
        return mx.nd.sparse.row_sparse_array((data, wanted), shape=shape)

    def first_column() -> "List[float]":
        kvs.row_sparse_pull("embedding", out=out, row_ids=everything)
        return out.asnumpy()[:, 0].tolist()

    kvs.init("embedding", full(1 + rank, shape).tostype("row_sparse"))
    kvs.init("dense", full(2, shape))
    assert first_column() == [1] * 6
    kvs.push("embedding", rows([rank, 5], 1))
    want = [1.0 if row < n else 0.0 for row in range(6)]
    want[5] = n
    assert first_column() == want
    kvs.push("embedding", rows([2] if rank == 1 else [], 3))
    assert first_column() == [0, 0, 3, 0, 0, 0]

    # Decay touches exactly the rows that somebody pushed, if only with zeros.
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, wd=1.0, rescale_grad=1.0))
    dense = full(0, shape)
    for key in ("embedding", "dense"):
        for _ in range(2):
            kvs.push(key, rows([rank], 0))
        start = [0, 0, 3, 0, 0, 0] if key == "embedding" else [2.0] * 6
        want = [value / 4 if row < n else value for row, value in enumerate(start)]
        kvs.pull(key, out=dense)
        assert dense.asnumpy()[:, 0].tolist() == want, (key, dense)


def sparse_embeddings(kvs: ScheduledKVS) -> None:
    """An embedding trained with sparse gradients ends with the weights of a dense run."""
    results = []
    for kind in ("dense", "sparse"):
        net = mx.gluon.nn.HybridSequential(prefix=f"{kind}_")
        with net.name_scope():
            net.add(mx.gluon.nn.Embedding(20, 4, sparse_grad=kind == "sparse"))
            net.add(mx.gluon.nn.Dense(1, flatten=False))
        net.initialize(mx.init.One())
        data = mx.nd.array(np.random.RandomState(kvs.rank).randint(0, 15, (8, 5, 3)))
        with mx.kv.create("bytescheduler") as second:
            trainer = mx.gluon.Trainer(
                net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=second
            )
            for batch in data:
                with mx.autograd.record():
                    loss = (net(batch) ** 2).mean()
                loss.backward()
                trainer.step(kvs.num_workers)
            results.append([p.data().asnumpy() for p in net.collect_params().values()])
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, rtol=1e-5)
        assert (one != 1).any()
    assert (results[1][0][15:] == 1).all()


def half(kvs: ScheduledKVS) -> None:
    """With multi_precision, float16 is summed and updated in float32, whichever comes first."""
    kvs.init("early", full(1, dtype="float16"))
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=1, multi_precision=True, rescale_grad=1.0))
    kvs.init("late", full(1, dtype="float16"))
    for key in ("early", "late"):
        for _ in range(8):
            kvs.push(key, full(-(2.0**-13), dtype="float16"))  # lost, in float16 beside 1
        assert read(kvs, key) == 1 + kvs.num_workers * 2.0**-10
        assert read(kvs, key, "float16") == 1 + kvs.num_workers * 2.0**-10


def codes_as_pushed(kvs: ScheduledKVS) -> None:
    """Codes are those of stock: made of what is pushed, whatever rescale_grad was before."""
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, rescale_grad=0.5))
    kvs._barrier()
    kvs.init("plain", full(1))
    kvs.push("plain", full(1))
    kvs._barrier()
    kvs.set_optimizer(mx.optimizer.create("test", rescale_grad=1))
    kvs.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    kvs.init("coded", full(0))
    kvs._barrier()
    seen = []
    for value in (0.3, 0.3, -0.7, 1.2, 0.0, 0.0):
        kvs.push("coded", full(value))
        seen.append(read(kvs, "coded") / kvs.num_workers)
    assert seen == [0, 0.5, 0, 0.5, 1, 1], seen


def updater(kvs: ScheduledKVS) -> None:
    n, seen = kvs.num_workers, []

    def update(key: bytes, received: Array, stored: Array) -> None:
        seen.append(key)
        stored[:] = stored * 2 + received

    kvs.init("early", full(1))
    kvs._set_updater(update)
    kvs.init("late", full(2))
    for key, first in (("early", 1), ("late", 2)):
        kvs.push(key, full(10))
        assert read(kvs, key) == first * 2 + 10 * n
        kvs.push(key, full(0))
        assert read(kvs, key) == (first * 2 + 10 * n) * 2
    assert seen == [b"early", b"early", b"late", b"late"]


def optimizer(kvs: ScheduledKVS) -> None:
    n = kvs.num_workers
    kvs.init("weight", full(0))
    sgd = mx.optimizer.SGD(learning_rate=1, momentum=0.5, rescale_grad=1.0)
    kvs.set_optimizer(sgd)
    kvs.push("weight", full(1))
    kvs.push("weight", full(1))
    assert read(kvs, "weight") == -n - 1.5 * n
    path = f"states-{kvs.rank}"
    kvs.save_optimizer_states(path, dump_optimizer=True)
    kvs.set_optimizer(sgd)  # the momentum starts afresh
    kvs.push("weight", full(1))
    assert read(kvs, "weight") == -3.5 * n
    kvs.load_optimizer_states(path)  # as it was: 1.5 n
    kvs.push("weight", full(0))
    assert read(kvs, "weight") == -3.5 * n - 0.75 * n
    kvs._updater.optimizer.set_learning_rate(0.0)  # takes effect
    kvs.push("weight", full(5))
    assert read(kvs, "weight") == -3.5 * n - 0.75 * n - 0.375 * n


def bad_input(kvs: ScheduledKVS) -> None:
    good, error = full(1), mx.base.MXNetError
    kvs.init(3, good)
    sparse = good.tostype("row_sparse")
    refused: List[tuple[type, str, Callable[[], None]]] = [
        (error, "duplicate init of key 3", lambda: kvs.init([8, 3], [good, good])),
        (error, "key 9 has not been init", lambda: kvs.push([3, 9], [good, good])),
        (error, "key 9 has not been init", lambda: kvs.pull(9, out=good)),
        (error, "cannot be mixed", lambda: kvs.init("name", good)),
        (error, "shape (3, 5) and dtype float32", lambda: kvs.push(3, full(1, (5, 3)))),
        (error, "dtype float16", lambda: kvs.push(3, [good, full(1, dtype="float16")])),
        (error, "has shape (5, 3)", lambda: kvs.pull(3, out=full(1, (5, 3)))),
        (error, "has shape (5, 3)", lambda: kvs.pushpull(3, good, out=full(1, (5, 3)))),
        (error, "csr arrays are not supported", lambda: kvs.push(3, good.tostype("csr"))),
        (error, "csr arrays are not supported", lambda: kvs.init(4, good.tostype("csr"))),
        (error, "needs row_sparse", lambda: kvs.row_sparse_pull(3, out=good, row_ids=good)),
        (error, "row 9 cannot", lambda: kvs.row_sparse_pull(3, out=sparse, row_ids=good * 9)),
        (error, "bool cannot be summed", lambda: kvs.init(4, good.astype("bool"))),
        (error, "want 0 <= key", lambda: kvs.init(-1, good)),
        (error, "compression", lambda: kvs.set_gradient_compression({"type": "1bit"})),
        (AssertionError, "param_dict", lambda: kvs.set_gradient_compression(None)),
        (ValueError, "Unknown capability", lambda: kvs.is_capable("flight")),
        (error, "key 8: an empty list", lambda: kvs.init([8, 8], [[], []])),
        (error, "key 9: an empty list", lambda: kvs.push([3, 9], [good, []])),
        (error, "key 3: an empty list", lambda: kvs.pushpull(3, [])),
        (AssertionError, "1 keys for 2 values", lambda: kvs.push([3], [good, good])),
        (AssertionError, "unexpected type for keys", lambda: kvs.push(1.5, good)),
        (AssertionError, "inconsistent types", lambda: kvs.push([3, "x"], [good, good])),
        (AssertionError, "want NDArray", lambda: kvs.push(3, [1.0])),
        (AssertionError, "", lambda: kvs.pull(3)),
        (TypeError, "not iterable", lambda: kvs.push(3, 1.0)),
        (AssertionError, "no optimizer", lambda: kvs.save_optimizer_states("states")),
    ]
    for kind, text, call in refused:
        expect(kind, text, call)
    # None of it has left this worker, and nothing is lost.
    kvs.init(8, full(4))
    kvs.push([3, 8], [good, good])
    assert (read(kvs, 3), read(kvs, 8)) == (kvs.num_workers, kvs.num_workers)


def thresholds_differ_late(kvs: ScheduledKVS) -> None:
    """The workers disagree; the job fails with an error that says so."""
    kvs.init("weight", full(0))
    kvs.set_gradient_compression({"type": "2bit", "threshold": (kvs.rank + 1) / 4})
    push_weight(kvs)


def thresholds_differ_early(kvs: ScheduledKVS) -> None:
    """The same, without a key of which somebody could tell."""
    kvs.set_gradient_compression({"type": "2bit", "threshold": (kvs.rank + 1) / 4})
    kvs.init("weight", full(0))
    push_weight(kvs)


def push_weight(kvs: ScheduledKVS) -> None:
    out = mx.nd.zeros(SHAPE)
    kvs.pushpull("weight", full(1), out=out)
    out.wait_to_read()


def closed(kvs: ScheduledKVS) -> None:
    kvs.init(30, full(1))
    out = mx.nd.zeros(SHAPE)
    kvs.pushpull(30, full(1), out=out)
    kvs.close()
    kvs.close()
    assert (out.asnumpy() == int(os.environ["DMLC_NUM_WORKER"])).all()
    for call in (lambda: kvs.push(30, out), lambda: kvs.barrier(), lambda: kvs.num_workers):
        try:
            call()
        except mx.base.MXNetError as error:
            assert "the store was closed" in str(error)  # noqa: PT017
        else:
            raise AssertionError("a closed store was of use")


def held(kvs: ScheduledKVS) -> None:
    """While rank 1 holds back some keys, all that does not need them goes on, and what does waits.

    More of them than MXNet's engine has threads for such operations, small and large ones.
    """
    flag = pathlib.Path("go")
    large, others = (200, 100), range(2, 10)
    kvs.init([0, 1, *others], [full(0), full(0), *(full(0, large) for _ in others)])
    weights = [full(0), full(0)]
    if kvs.rank == 1:
        kvs.pushpull(1, full(2), out=weights[1])
        while not flag.exists():
            threading.Event().wait(0.02)
        kvs.pushpull(0, full(1), out=weights[0])
        assert (weights[0].asnumpy() == 2).all()
        for key in others:
            kvs.push(key, full(1, large))
        return
    kvs.pushpull(0, full(1), out=weights[0], priority=0)
    sums = [full(0, large) for _ in others]
    for key, total in zip(others, sums):
        kvs.pushpull(key, full(key, large), out=total)
    kvs.pushpull(1, full(2), out=weights[1], priority=-1)
    images = full(1)
    other_layer = images * weights[1]
    held_layer = images * weights[0]
    assert (other_layer.asnumpy() == 4).all()
    assert ((images + 1).asnumpy() == 2).all()
    values: List[float] = []
    waiter = threading.Thread(target=lambda: values.append(float(held_layer.asnumpy()[0, 0])))
    waiter.start()
    waiter.join(0.5)
    assert waiter.is_alive(), "the held layer did not wait"
    flag.touch()
    waiter.join()
    assert values == [2.0]
    for key, total in zip(others, sums):
        assert (total.asnumpy() == key + 1).all()


def batches() -> "Iterator[Array]":
    data = mx.gluon.data.ArrayDataset(np.ones((8, 4), np.float32))
    yield from mx.gluon.data.DataLoader(data, 4, num_workers=2)


def fork(kvs: ScheduledKVS) -> None:
    """DataLoader workers fork in the middle of training, with rounds pending."""
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize(mx.init.One())
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kvs)
    for _ in range(3):
        for images in batches():
            with mx.autograd.record():
                loss = net(images).sum()
            loss.backward()
            trainer.step(4)
    want = 1 - 6 * 0.1 * kvs.num_workers
    np.testing.assert_allclose(net.weight.data().asnumpy(), np.full((3, 4), want), rtol=1e-5)
    np.testing.assert_allclose(net.bias.data().asnumpy(), np.full(3, want - 1), rtol=1e-5)


def forked_child(kvs: ScheduledKVS) -> None:
    """In a child of ours the store raises, and nothing of it acts at its exit."""
    kvs.init(30, full(1))
    child = os.fork()
    if child == 0:
        try:
            kvs.push(30, full(1))
        except mx.base.MXNetError as error:
            code = 0 if "created before fork" in str(error) else 3
            sys.exit(code)
        os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    kvs.push(30, full(1))
    assert read(kvs, 30) == kvs.num_workers


def train_for_long(kvs: ScheduledKVS) -> None:
    """Until the job fails; the error leaves the process.  Every sum is checked."""
    kvs.init([0, 1], [full(0, (100000,)), full(0)])
    for step in range(100000):
        values = [full(step, (100000,)), full(step)]
        kvs.pushpull([0, 1], values)
        for value in values:
            assert (value.asnumpy() == step * kvs.num_workers).all(), step
        if step == 5:
            print("training", flush=True)
        if step % 10 == 0:
            print(f"step {step}", flush=True)


def raises_in_rank_1(kvs: ScheduledKVS) -> None:
    kvs.init(0, full(0))
    value = full(1)
    for step in range(100):
        if step == 3 and kvs.rank == 1:
            raise RuntimeError("a mistake of the user's")
        kvs.pushpull(0, value)
        value.wait_to_read()


def exits_in_rank_1(kvs: ScheduledKVS) -> None:
    kvs.init(0, full(0))
    value = full(1)
    for step in range(100):
        if step == 3 and kvs.rank == 1:
            sys.exit(7)
        kvs.pushpull(0, value)
        value.wait_to_read()


def ends_unheard(kvs: ScheduledKVS) -> None:
    """Each worker ends with a round that needs the other, who never comes."""
    kvs.init([0, 1], [full(0), full(0)])
    kvs.push(kvs.rank, full(1))
    print("pushed", flush=True)


def bad_gradient(kvs: ScheduledKVS) -> None:
    """An operation fails in rank 1: its gradient never comes."""
    kvs.init("weight", full(0, (3,)))
    gradient = full(1, (3,))
    if kvs.rank == 1:
        scale = -1  # refused by the operator, when it runs
        gradient = mx.nd.broadcast_to(mx.nd.random.normal(0, scale, shape=(1,)), shape=(3,))
    out = mx.nd.zeros((3,))
    kvs.push("weight", gradient)
    kvs.pull("weight", out=out)
    out.wait_to_read()


def leave_early(kvs: ScheduledKVS) -> None:
    """Rank 1 ends with a round that rank 0 has not begun; nothing is lost."""
    kvs.init(0, full(0))
    out = full(0)
    if kvs.rank == 0:
        threading.Event().wait(1.0)
    kvs.pushpull(0, full(1), out=out)
    if kvs.rank == 0:
        assert (out.asnumpy() == kvs.num_workers).all()


def wraps_in_rank_1_only() -> None:
    """Rank 0 uses its stock store as it is, without a word until the other has given up."""
    kvs = mx.kv.create("dist_sync")
    if kvs.rank == 1:
        ScheduledKVS(kvs)
    until_the_test_is_done()


if __name__ == "__main__":
    if sys.argv[2] == "wraps_in_rank_1_only":
        wraps_in_rank_1_only()
    kind, *asked = sys.argv[1:]
    if "=" in asked[0]:
        in_turn(asked, lambda cases: run(open_store(kind), globals(), cases))
    else:
        run(open_store(kind), globals(), asked)
