"""A worker whose gradients and sums travel in two bytes an element: ``casts.py COMPRESSOR PULL``.

With "differs" as PULL, rank 1 asks for another compressor.
"""

import sys
import zlib

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS

SHAPE = (1000, 201)  # three units and a piece
SMALL = (100,)
ROUNDS = 4


LARGE = 40_000.0  # of all workers it is more than fp16 has


def gradient(rank: int, step: int, shape: "tuple[int, ...]") -> np.ndarray:
    random = np.random.RandomState(1000 * step + rank)
    values = random.uniform(-2, 2, shape).astype(np.float32)
    values[:2] = LARGE
    return values


def bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def fp16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def expected(compressor: str, pull: str, step: int, workers: int) -> np.ndarray:
    narrow = {"bf16": bf16, "fp16": fp16}[compressor]
    total = np.zeros(SHAPE, np.float32)
    for rank in range(workers):
        total = total + narrow(gradient(rank, step, SHAPE))
    if pull == "plain":
        return total
    if pull == "bf16" or compressor == "bf16":
        return bf16(total)
    return fp16(total / workers) * workers  # a power of two


def moved(kvs: ScheduledKVS) -> "dict[str, float]":
    """Return the bytes pushed and pulled, of all servers."""
    metrics = kvs._backend._session._worker.measure()
    return {
        way: sum(m.value for m in metrics if m.name.endswith(f"{way}_bytes_total"))
        for way in ("pushed", "pulled")
    }


def coding_seconds(kvs: ScheduledKVS) -> float:
    metrics = kvs._backend._session._worker.measure()
    return sum(m.value for m in metrics if m.name == "coding_seconds_total")


def train(compressor: str) -> None:
    """Train by Gluon with its own argument; print the weights' checksum."""
    net = mx.gluon.nn.Dense(256, in_units=128)
    net.initialize(mx.init.One())
    kvs = ScheduledKVS()
    trainer = mx.gluon.Trainer(
        net.collect_params(), "sgd", kvstore=kvs, compression_params={"compressor": compressor}
    )
    for step in range(3):
        with mx.autograd.record():
            loss = (net(mx.nd.array(gradient(kvs.rank, step, (6, 128))[2:])) ** 2).sum()
        loss.backward()
        trainer.step(4)
    print(f"weights {zlib.crc32(net.weight.data().asnumpy().tobytes())}", flush=True)
    kvs.close()


def overflow(kvs: ScheduledKVS) -> None:
    """Push infinity and NaN from one worker: all see them, in that round alone."""
    mine = np.ones(SHAPE, np.float32)
    if kvs.rank == 0:
        mine[0, :2] = np.inf, np.nan
    out = mx.nd.zeros(SHAPE)
    kvs.pushpull("late", mx.nd.array(mine), out=out)
    total = out.asnumpy()
    assert total[0, 0] == np.inf
    assert np.isnan(total[0, 1])
    assert (total[0, 2:] == kvs.num_workers).all()
    assert (total[1:] == kvs.num_workers).all()
    kvs.pushpull("late", mx.nd.ones(SHAPE), out=out)
    assert (out.asnumpy() == kvs.num_workers).all()


def train_module(compressor: str) -> None:
    """Train by Module with its own argument; print the weights' checksum."""
    out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=256, name="full")
    module = mx.mod.Module(
        mx.sym.LinearRegressionOutput(out, mx.sym.Variable("label"), name="out"),
        label_names=["label"],
        compression_params={"compressor": compressor},
    )
    kvs = ScheduledKVS()
    features = gradient(kvs.rank, 1, (14, 128))[2:]
    before = moved(kvs)["pushed"]
    module.fit(
        mx.io.NDArrayIter(features, np.ones((12, 256)), 4, label_name="label"),
        eval_metric="mse",
        initializer=mx.init.One(),
        kvstore=kvs,
        optimizer_params={"learning_rate": 1e-3},
        num_epoch=1,
    )
    weight = module.get_params()[0]["full_weight"].asnumpy()
    # Rank 0 sends the first value too, and the smaller bias travels as it is.
    sent = moved(kvs)["pushed"] - before - (weight.nbytes if kvs.rank == 0 else 0)
    assert sent < 0.6 * 3 * weight.nbytes, sent
    assert np.isfinite(weight).all()
    assert (weight != 1).any()
    print(f"module {zlib.crc32(weight.tobytes())}", flush=True)
    kvs.close()


def main() -> None:
    compressor, pull = sys.argv[1:]
    params = {"compressor": compressor, "ef": None, "momentum": "", "k": 1.0, "fp16": False}
    if pull not in ("same", "differs"):
        params["pull"] = pull
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    kvs.init("early", mx.nd.zeros(SHAPE))
    kvs.init("half", mx.nd.zeros(SHAPE, dtype="float16"))
    out = mx.nd.zeros(SHAPE)
    if pull == "differs" and kvs.rank == 1:
        params["compressor"] = "fp16"
    given = dict(params)
    kvs.set_gradient_compression(params)
    assert params == given, "the caller's dictionary has changed"
    kvs.init("late", mx.nd.zeros(SHAPE))
    kvs.init("small", mx.nd.zeros(SMALL))
    small = mx.nd.zeros(SMALL)
    kvs.pushpull("small", mx.nd.ones(SMALL), out=small)
    small.wait_to_read()
    assert coding_seconds(kvs) == 0, "a tensor of a few bytes travels plain"
    for step in range(ROUNDS):
        exact = np.zeros(SHAPE, np.float32)
        for rank in range(kvs.num_workers):
            exact = exact + gradient(rank, step, SHAPE)
        coded = expected(compressor, pull if pull != "differs" else "same", step, kvs.num_workers)
        for key in ("early", "late"):
            kvs.pushpull(key, mx.nd.array(gradient(kvs.rank, step, SHAPE)), out=out)
            want = exact if (key, step) == ("early", 0) else coded
            np.testing.assert_array_equal(out.asnumpy(), want, f"{key} {step}")
        kvs.pushpull("small", mx.nd.array(gradient(kvs.rank, step, SMALL)), out=small)
        exact = sum(gradient(rank, step, SMALL) for rank in range(kvs.num_workers))
        np.testing.assert_array_equal(small.asnumpy(), exact)
    assert coding_seconds(kvs) > 0
    half = mx.nd.zeros(SHAPE, dtype="float16")
    # Of 1 and 2**-9 in float16, bf16 keeps the first only.
    kvs.pushpull("half", mx.nd.full(SHAPE, 1 + 2**-9, dtype="float16"), out=half)
    kept = 1 if "bf16" in (compressor, pull) else 1 + 2**-9
    assert (half.asnumpy() == kept * kvs.num_workers).all()
    kvs.init("doubles", mx.nd.zeros(SHAPE, dtype="float64"))
    for call in (
        lambda: kvs.push("doubles", mx.nd.zeros(SHAPE, dtype="float64")),
        lambda: kvs.push("late", mx.nd.zeros(SHAPE).tostype("row_sparse")),
        lambda: kvs.set_gradient_compression({"compressor": "bf16"}),
    ):
        try:
            call()
        except mx.base.MXNetError as error:
            print("refused:", error)
        else:
            raise AssertionError("not refused")
    before = moved(kvs)
    for _ in range(ROUNDS):
        kvs.pushpull("late", mx.nd.ones(SHAPE), out=out)
        out.wait_to_read()
    after = moved(kvs)
    size = 4 * SHAPE[0] * SHAPE[1] * ROUNDS
    assert abs((after["pushed"] - before["pushed"]) / (size / 2) - 1) < 0.03
    pulled = size if pull == "plain" else size / 2
    assert abs((after["pulled"] - before["pulled"]) / pulled - 1) < 0.03
    overflow(kvs)
    kvs._barrier()
    train(compressor)
    train_module(compressor)
    kvs.close()


if __name__ == "__main__":
    main()
