"""Trains a layer with the names of BytePS, or with ours: ``byteps_names.py NAMES COMPRESSION``.

NAMES is "byteps" or "ours"; COMPRESSION "none" or "onebit".  Prints the weights' checksum.
"""

import sys
import zlib

import mxnet as mx
import numpy as np

import bytescheduler.mxnet as bps

BATCH = 4
RATES = {"learning_rate": 0.1, "momentum": 0.5, "wd": 0.01}


def compression(method: str) -> "dict[str, object]":
    """Return the dictionary as BytePS's own script for CIFAR-100 makes it: with all keys."""
    one_bit = method == "onebit"
    return {
        "compressor": "onebit" if one_bit else None,
        "ef": "vanilla" if one_bit else "",
        "momentum": "nesterov" if one_bit else None,
        "scaling": one_bit,
        "k": 1.0,
        "partition": None,
        "normalize": "",
        "seed": None,
        "fp16": False,
    }


def check_names() -> None:
    tensor = mx.nd.full((3,), bps.rank() + 1)
    bps.byteps_declare_tensor("tensor")
    bps.byteps_push_pull(tensor, version=0, priority=0, name="tensor", is_average=False)
    assert (tensor.asnumpy() == sum(range(1, bps.size() + 1))).all()
    bps.byteps_push_pull(tensor, name="tensor")
    assert (tensor.asnumpy() == sum(range(1, bps.size() + 1))).all(), "a mean of equal numbers"
    root = bps.size() - 1
    values = {"a": mx.nd.full((2,), bps.rank()), "b": mx.nd.full((5,), bps.rank() + 0.5)}
    bps.broadcast_parameters(values, root_rank=root)
    assert (values["a"].asnumpy() == root).all()
    assert (values["b"].asnumpy() == root + 0.5).all()
    later = mx.gluon.nn.Dense(3)
    later.initialize(mx.init.Uniform())
    bps.broadcast_parameters(later.collect_params(), root_rank=root)
    later(mx.nd.ones((1, 4)))
    mean = later.weight.data().copy()
    bps.byteps_push_pull(mean, name="mean")
    np.testing.assert_array_equal(mean.asnumpy(), later.weight.data().asnumpy())
    check_wrong_dictionary(root)
    assert 0 <= bps.local_rank() < bps.local_size() <= bps.size()
    optimizer = bps.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1, wd=0.0))
    updater = mx.optimizer.get_updater(optimizer)
    weight = mx.nd.zeros((2,))
    updater(0, mx.nd.full((2,), bps.rank()), weight)
    assert (weight.asnumpy() == -(bps.size() - 1) / 2).all()
    for call in (bps.suspend, bps.resume):
        try:
            call()
        except bps_error() as error:
            print("refused:", error, flush=True)
        else:
            raise AssertionError("not refused")


def check_wrong_dictionary(root: int) -> None:
    """It is refused before the parameters are those of `root`."""
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.Constant(bps.rank() + 1))
    try:
        bps.DistributedTrainer(
            net.collect_params(), "sgd", root_rank=root, compression_params={"compressor": "zip"}
        )
    except mx.base.MXNetError as error:
        assert "'zip': want" in str(error)  # noqa: PT017
    else:
        raise AssertionError("not refused")
    assert (net.weight.data().asnumpy() == bps.rank() + 1).all()


def bps_error() -> type:
    from bytescheduler.errors import UsageError

    return UsageError


def main() -> None:
    names, method = sys.argv[1:]
    bps.init()
    mx.random.seed(bps.rank())
    check_names()
    net = mx.gluon.nn.Dense(256, in_units=128)
    net.initialize(mx.init.Uniform())
    params, rates = net.collect_params(), dict(RATES)
    asked = compression(method)
    given = dict(asked)
    if names == "byteps":
        trainer = bps.DistributedTrainer(params, "sgd", rates, compression_params=asked)
        batch = BATCH
    else:
        trainer = bps.ScheduledTrainer(
            params, "sgd", rates, compression_params=asked if bps.size() > 1 else None
        )
        batch = BATCH * bps.size()
    assert (rates, asked) == (RATES, given), "the caller's dictionaries have changed"
    for step in range(5):
        random = np.random.RandomState(10 * step + bps.rank())
        data = mx.nd.array(random.normal(0, 1, (BATCH, 128)))
        with mx.autograd.record():
            loss = (net(data) ** 2).sum()
        loss.backward()
        trainer.step(batch)
    weights = net.weight.data().asnumpy()
    assert np.isfinite(weights).all()
    print(f"weights {zlib.crc32(weights.tobytes())}", flush=True)
    trainer.kvstore.close()
    bps.shutdown()


if __name__ == "__main__":
    main()
