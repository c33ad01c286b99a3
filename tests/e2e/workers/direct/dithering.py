"""A worker whose gradients and sums travel as levels of a norm: ``dithering.py CASE``.

With "differs" rank 1 has another seed.
"""

import sys
from typing import Dict, Tuple

import mxnet as mx
import numpy as np
from casts import moved
from dither_model import INT8, SERVER, Coder, Floats, Method, Place

from bytescheduler.mxnet import ScheduledKVS

Params = Dict[str, object]

SHAPES = {1: (1,), 2: (7,), 3: (9,), 4: (16,), 5: (300, 437)}  # the last has two units, nearly
ROUNDS = 5
# As BytePS's scripts write them, with all their keys, and with fewer.
CASES: Dict[str, Tuple[Params, Method]] = {
    "linear": (
        {"compressor": "dithering", "k": 7.0, "ef": None, "normalize": "", "seed": 1.0},
        Method(7),
    ),
    "signs": (
        {
            "compressor": "dithering",
            "k": 1,
            "normalize": "l2",
            "bucket": 64,
            "seed": 5,
            "ef": "vanilla",
        },
        Method(1, normalize="l2", bucket=64, seed=5),
    ),
    "natural": (
        {
            "compressor": "dithering",
            "k": 5,
            "partition": "natural",
            "normalize": "l2",
            "seed": 77,
            "ef": "vanilla",
        },
        Method(5, "natural", "l2", seed=77),
    ),
    "plain": (
        {"compressor": "dithering", "k": 1000, "partition": "linear", "pull": "plain", "seed": 1},
        Method(1000),
    ),
    "int8": ({"compressor": "int8", "ef": "vanilla", "k": None, "fp16": False, "seed": 1}, INT8),
}


def gradient(rank: int, step: int, key: int) -> Floats:
    random = np.random.RandomState(1000 * step + 10 * key + rank)
    values = random.normal(0, 1, SHAPES[key]).astype(np.float32)
    values.flat[-1] = -0.0
    if step == 3 and key == 3 and rank == 1:
        values.flat[2] = np.inf
    return values


def expected(kvs: ScheduledKVS, case: str) -> "dict[tuple[int, int], Floats]":
    params, method = CASES[case]
    keeps = bool(params.get("ef"))
    sums = {}
    for key, shape in SHAPES.items():
        count = int(np.prod(shape))
        engine_key = kvs._backend._tensors[key].engine_key
        coders = [Coder(method, keeps, count) for _ in range(kvs.num_workers)]
        server = Coder(method, keeps, count)
        for step in range(ROUNDS):
            total = np.zeros(count, np.float32)
            for rank, coder in enumerate(coders):
                place = Place(engine_key, step + 1, rank)
                total = total + coder.code(gradient(rank, step, key).reshape(-1), place)[1]
            if params.get("pull") != "plain":
                total = server.code(total, Place(engine_key, step + 1, SERVER))[1]
            sums[step, key] = total.reshape(shape)
    return sums


def check_bytes(kvs: ScheduledKVS, case: str) -> None:
    """Compare what is pushed and pulled with the sizes of codes."""
    params, method = CASES[case]
    count = int(np.prod(SHAPES[5]))
    before = moved(kvs)
    for _ in range(ROUNDS):
        out = mx.nd.zeros(SHAPES[5])
        kvs.pushpull(5, mx.nd.ones(SHAPES[5]), out=out)
        out.wait_to_read()
    after = moved(kvs)
    codes = count * method.width / 8 + 4 * count / method.bucket
    sizes = {"pushed": codes, "pulled": 4 * count if params.get("pull") == "plain" else codes}
    for way, size in sizes.items():
        assert abs((after[way] - before[way]) / (ROUNDS * size) - 1) < 0.03, way


def main() -> None:
    (case,) = sys.argv[1:]
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    params = dict(CASES["natural" if case == "differs" else case][0])
    if case == "differs" and kvs.rank == 1:
        params["seed"] = 78
    given = dict(params)
    kvs.set_gradient_compression(params)
    assert params == given, "the caller's dictionary has changed"
    for key, shape in SHAPES.items():
        kvs.init(key, mx.nd.zeros(shape))
    if case == "differs":
        kvs.pushpull(5, mx.nd.ones(SHAPES[5]), out=mx.nd.zeros(SHAPES[5]))
        mx.nd.waitall()
    sums = expected(kvs, case)
    for step in range(ROUNDS):
        for key, shape in SHAPES.items():
            out = mx.nd.zeros(shape)
            kvs.pushpull(key, mx.nd.array(gradient(kvs.rank, step, key)), out=out)
            np.testing.assert_array_equal(out.asnumpy(), sums[step, key], f"{key} {step}")
    check_bytes(kvs, case)
    kvs.close()


if __name__ == "__main__":
    main()
