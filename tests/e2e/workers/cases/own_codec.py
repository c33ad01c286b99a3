"""A worker whose gradients travel in the tests' own codec: ``own_codec.py STEP``."""

import sys

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS

ROUNDS = 10
SHAPES = {"weight": (300, 17), "bias": (17,)}


def gradient(rank: int, step: int, shape: "tuple[int, ...]") -> np.ndarray:
    random = np.random.RandomState(1000 * step + rank)
    return random.uniform(-2, 2, shape).astype(np.float32)


def main() -> None:
    step = float(sys.argv[1])
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    kvs.set_gradient_compression({"type": "steps", "step": step})
    given, arrived = ({key: np.zeros(shape) for key, shape in SHAPES.items()} for _ in range(2))
    for key, shape in SHAPES.items():
        kvs.init(key, mx.nd.zeros(shape))
    for number in range(ROUNDS):
        for key, shape in SHAPES.items():
            every = [gradient(rank, number, shape) for rank in range(kvs.num_workers)]
            out = mx.nd.zeros(shape)
            kvs.pushpull(key, mx.nd.array(every[kvs.rank]), out=out)
            total = out.asnumpy()
            assert (total % step == 0).all(), "not in steps"
            given[key] += sum(every)
            arrived[key] += total
            # The residuals have the rest, half a step each at most.
            most = kvs.num_workers * step / 2
            assert abs(given[key] - arrived[key]).max() <= most + 1e-3, (key, number)
    kvs.init("half", mx.nd.zeros((4,), dtype="float16"))
    refused = ""
    try:
        kvs.push("half", mx.nd.ones((4,), dtype="float16"))
    except mx.base.MXNetError as error:
        refused = str(error)
    assert f"float16 cannot be compressed to steps of {step:f}, only float32" in refused, refused
    kvs._barrier()


if __name__ == "__main__":
    main()
