"""A worker whose gradients and sums travel as signs: ``onebit.py EF``.

EF is "none", "vanilla", "corrected", which sets an optimizer whose rates change, or "differs",
where rank 1 asks for another one.  "module" trains a Module.
"""

import sys
import zlib

import mxnet as mx
import numpy as np
from casts import moved

from bytescheduler.mxnet import ScheduledKVS

UNIT = 65536
SHAPES = {1: (1,), 2: (7,), 3: (9,), 4: (8,), 5: (300, 437)}  # the last has two units, nearly
ROUNDS = 6
RATES = [(0.1, 1 / 64), (0.1, 1 / 128), (0.01, 1 / 128), (0.0, 1 / 128), (0.1, 1 / 64)]
RATES.append((0.05, 1 / 64))

Floats = np.ndarray


def gradient(rank: int, step: int, key: int, overflows: bool = True) -> Floats:
    random = np.random.RandomState(1000 * step + 10 * key + rank)
    values = random.normal(0, 1, SHAPES[key]).astype(np.float32)
    values.flat[-1] = -0.0
    if overflows and step == 4 and key == 3 and rank == 1:
        values.flat[2] = np.inf
    return values


def coded(p: Floats) -> Floats:
    """Return the values of a unit's codes."""
    if not np.isfinite(p).all():
        return np.full_like(p, np.nan)
    lanes = np.zeros(8)
    size = np.abs(p.astype(np.float64))
    size = np.concatenate([size, np.zeros(-len(size) % 8)]).reshape(-1, 8)
    for row in size:
        lanes += row
    total = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + (
        (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
    )
    return np.copysign(np.float32(total / len(p)), p)


class Coder:
    """A worker's, or a server's, with a residual; `ef` "none": without."""

    def __init__(self, ef: str, count: int) -> None:
        self.keeps = ef != "none"
        self.residual = np.zeros(count, np.float32)

    def code(self, values: Floats, ratio: np.float32) -> Floats:
        if not self.keeps:
            return np.concatenate([coded(part) for part in units(values)])
        kept = ratio * self.residual
        p = values + kept
        sent = np.concatenate([coded(part) for part in units(p)])
        self.residual = np.where(np.isfinite(sent), p - sent, kept)
        return sent


def units(values: Floats) -> "list[Floats]":
    return [values[at : at + UNIT] for at in range(0, len(values), UNIT)]


def ratio(ef: str, step: int) -> np.float32:
    """Return the factor of residuals, in float64 and rounded once."""
    if ef != "corrected" or step == 0:
        return np.float32(1)
    (eta_before, rescale_before), (eta, rescale) = RATES[step - 1 : step + 1]
    etas = 1.0 if 0 in (eta_before, eta) else min(eta_before / eta, 16.0)
    return np.float32(etas * (rescale_before / rescale))


def expected(ef: str, workers: int, overflows: bool = True) -> "dict[tuple[int, int], Floats]":
    sums = {}
    for key, shape in SHAPES.items():
        count = int(np.prod(shape))
        coders = [Coder(ef, count) for _ in range(workers)]
        server = Coder(ef, count)
        for step in range(ROUNDS):
            q = ratio(ef, step)
            total = np.zeros(count, np.float32)
            for rank, coder in enumerate(coders):
                total = total + coder.code(gradient(rank, step, key, overflows).reshape(-1), q)
            sums[step, key] = server.code(total, q).reshape(shape)
    return sums


def check_sums(kvs: ScheduledKVS, ef: str) -> None:
    sums = expected(ef, kvs.num_workers)
    for step in range(ROUNDS):
        for key, shape in SHAPES.items():
            out = mx.nd.zeros(shape)
            kvs.pushpull(key, mx.nd.array(gradient(kvs.rank, step, key)), out=out)
            np.testing.assert_array_equal(out.asnumpy(), sums[step, key], f"{key} {step}")
    before = moved(kvs)
    for _ in range(ROUNDS):
        kvs.pushpull(5, mx.nd.ones(SHAPES[5]), out=out)
        out.wait_to_read()
    after = moved(kvs)
    codes = ROUNDS * (2 * 8196 + 4 + 4)  # two units, and 28 elements
    for way in ("pushed", "pulled"):
        assert abs((after[way] - before[way]) / codes - 1) < 0.03, way


def check_weights(kvs: ScheduledKVS) -> None:
    sums = expected("corrected", kvs.num_workers, overflows=False)  # which weights never get over
    optimizer = mx.optimizer.SGD(learning_rate=1, wd=0.0)
    kvs.set_optimizer(optimizer)
    weights = {key: np.zeros(shape) for key, shape in SHAPES.items()}
    for step, (eta, rescale) in enumerate(RATES):
        optimizer.set_learning_rate(eta)
        optimizer.rescale_grad = rescale
        for key, shape in SHAPES.items():
            kvs.push(key, mx.nd.array(gradient(kvs.rank, step, key, overflows=False)))
            out = mx.nd.zeros(shape)
            kvs.pull(key, out=out)
            weights[key] = weights[key] - eta * rescale * sums[step, key]
            np.testing.assert_allclose(out.asnumpy(), weights[key], 1e-4, 1e-6, err_msg=str(key))


def train_module(kvs: ScheduledKVS, params: "dict[str, object]") -> None:
    """Train with Module's own argument, momentum included; print the weights' checksum."""
    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=256, name="fc")
    loss = mx.sym.LinearRegressionOutput(layer, mx.sym.Variable("label"))
    module = mx.mod.Module(
        loss, ("data",), ("label",), compression_params={**params, "momentum": "nesterov"}
    )
    module.bind([("data", (4, 128))], [("label", (4, 256))])
    module.init_params(mx.init.One())
    rates = {"learning_rate": 0.001, "momentum": 0.5, "wd": 0.01}
    module.init_optimizer(kvs, "sgd", rates)
    for step in range(4):
        random = np.random.RandomState(10 * step + kvs.rank)
        data = mx.nd.array(random.normal(0, 1, (4, 128)))
        module.forward_backward(mx.io.DataBatch([data], [mx.nd.ones((4, 256))]))
        module.update()
    weights = module.get_params()[0]["fc_weight"].asnumpy()
    assert np.isfinite(weights).all()
    assert kvs._backend._has_coded
    print(f"weights {zlib.crc32(weights.tobytes())}", flush=True)


def main() -> None:
    (ef,) = sys.argv[1:]
    params = {"compressor": "onebit", "scaling": True, "k": None, "fp16": False, "momentum": ""}
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    if ef == "module":
        train_module(kvs, {**params, "ef": "vanilla"})
        kvs.close()
        return
    if ef != "none":
        params["ef"] = "vanilla" if ef == "differs" and kvs.rank == 1 else ef
    if ef == "differs" and kvs.rank == 0:
        params["ef"] = "corrected"
    given = dict(params)
    kvs.set_gradient_compression(params)
    assert params == given, "the caller's dictionary has changed"
    for key, shape in SHAPES.items():
        kvs.init(key, mx.nd.zeros(shape))
    if ef == "corrected":
        check_weights(kvs)
    else:
        check_sums(kvs, ef)
    kvs.close()


if __name__ == "__main__":
    main()
