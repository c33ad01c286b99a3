"""A worker whose gradients and sums travel as some of their elements: ``picks.py METHOD EF``.

METHOD is a row of `METHODS`, EF "none" or an `ef`.  "differs" as EF gives rank 1 another k.
"""

import sys
import zlib

import mxnet as mx
import numpy as np
from casts import moved
from pick_model import SERVER, Coder, Floats, Method, Place

from bytescheduler.mxnet import ScheduledKVS

METHODS = {
    "topk": Method("topk", 0.3),
    "topk-whole": Method("topk", 1000),
    "topk-halves": Method("topk", 0.3, halves=True),
    "randomk": Method("randomk", 0.3, seed=7),
    "randomk-whole": Method("randomk", 40000, seed=7),
    "randomk-halves": Method("randomk", 0.3, halves=True, seed=7),
}
# One element and a whole k of 1000 have codes that are no smaller.  The last has two units, nearly.
SHAPES = {1: (1,), 2: (7,), 3: (9,), 4: (600,), 5: (300, 437)}
ROUNDS = 6


def gradient(rank: int, step: int, key: int) -> Floats:
    random = np.random.RandomState(1000 * step + 10 * key + rank)
    values = random.normal(0, 1, SHAPES[key]).astype(np.float32)
    values.flat[-1] = -0.0
    if step == 3 and key == 4 and rank == 1:
        values.flat[2] = np.inf
    return values


def is_coded(method: Method, count: int) -> bool:
    codes, _ = Coder(method, count, keeps=True).code(np.zeros(count, np.float32), Place(0, 1))
    return len(codes) < 4 * count


def expected(kvs: ScheduledKVS, method: Method, ef: str, key: int) -> "list[Floats]":
    """Return the sum of each step."""
    count, workers = int(np.prod(SHAPES[key])), kvs.num_workers
    engine_key = kvs._backend._tensors[key].engine_key
    coders = [Coder(method, count, keeps=ef != "none") for _ in range(workers)]
    loses = method.name == "topk" or method.halves  # else a sum is coded without a loss
    server = Coder(method, count, keeps=ef != "none" and loses)
    sums = []
    for step in range(ROUNDS):
        place = Place(engine_key, step + 1, workers=workers)
        total = np.zeros(count, np.float32)
        for rank, coder in enumerate(coders):
            flat = gradient(rank, step, key).reshape(-1)
            if is_coded(method, count):
                _, flat = coder.code(flat, place._replace(rank=rank))
            total = total + flat
        if is_coded(method, count):
            _, total = server.code(total, place._replace(rank=SERVER))
        sums.append(total)
    return sums


def check_sums(kvs: ScheduledKVS, method: Method, ef: str) -> None:
    for key, shape in SHAPES.items():
        for step, total in enumerate(expected(kvs, method, ef, key)):
            out = mx.nd.zeros(shape)
            kvs.pushpull(key, mx.nd.array(gradient(kvs.rank, step, key)), out=out)
            np.testing.assert_array_equal(
                out.asnumpy(), total.reshape(shape), f"key {key} step {step}"
            )


def check_bytes(kvs: ScheduledKVS, method: Method) -> None:
    out = mx.nd.zeros(SHAPES[5])
    before = moved(kvs)
    for _ in range(ROUNDS):
        kvs.pushpull(5, mx.nd.ones(SHAPES[5]), out=out)
        out.wait_to_read()
    after = moved(kvs)
    count = int(np.prod(SHAPES[5]))
    codes, _ = Coder(method, count, keeps=True).code(np.zeros(count, np.float32), Place(0, 1))
    for way in ("pushed", "pulled"):
        assert abs((after[way] - before[way]) / (ROUNDS * len(codes)) - 1) < 0.03, way


def check_drawn(kvs: ScheduledKVS) -> None:
    """All nodes draw the same elements where the user gives no seed."""
    values = np.arange(1, 601, dtype=np.float32)
    for _ in range(ROUNDS):
        out = mx.nd.zeros(SHAPES[4])
        kvs.pushpull(4, mx.nd.array(values), out=out)
        total = out.asnumpy()
        assert np.count_nonzero(total) == 300
        np.testing.assert_array_equal(total[total != 0], 2 * kvs.num_workers * values[total != 0])
    print(f"drawn {zlib.crc32(total.tobytes())}", flush=True)


def main() -> None:
    name, ef = sys.argv[1:]
    method = METHODS.get(name, METHODS["randomk"])
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    k = 0.2 if ef == "differs" and kvs.rank == 1 else method.k
    params = {"compressor": method.name, "k": float(k), "fp16": method.halves, "momentum": ""}
    params.update({"ef": ef if ef != "none" else None, "seed": method.seed or None})
    if ef == "differs":
        params["ef"] = "vanilla"
    if name == "drawn":
        params.update({"k": 0.5, "seed": None})
    given = dict(params)
    kvs.set_gradient_compression(params)
    assert params == given, "the caller's dictionary has changed"
    for key, shape in SHAPES.items():
        kvs.init(key, mx.nd.zeros(shape))
    if name == "drawn":
        check_drawn(kvs)
    else:
        check_sums(kvs, method, ef)
        check_bytes(kvs, method)
    kvs.close()


if __name__ == "__main__":
    main()
