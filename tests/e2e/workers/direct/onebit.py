"""A worker whose gradients and sums travel as signs: ``onebit.py EF``.

EF is "none", "vanilla", "corrected", which sets an optimizer whose rates change, or "differs",
where rank 1 asks for another one, with an optimizer too.  "module" trains a Module.
"""

import contextlib
import sys
import zlib

import mxnet as mx
import numpy as np
from casts import moved
from onebit_model import Coder, Floats

from bytescheduler.mxnet import ScheduledKVS

SHAPES = {1: (1,), 2: (7,), 3: (9,), 4: (8,), 5: (300, 437)}  # the last has two units, nearly
ROUNDS = 6
RATES = [(0.1, 1 / 64), (0.1, 1 / 128), (0.01, 1 / 128), (0.0, 1 / 128), (0.1, 1 / 64)]
RATES.append((0.05, 1 / 64))


def gradient(rank: int, step: int, key: int, overflows: bool = True) -> Floats:
    random = np.random.RandomState(1000 * step + 10 * key + rank)
    values = random.normal(0, 1, SHAPES[key]).astype(np.float32)
    values.flat[-1] = -0.0
    if overflows and step == 4 and key == 3 and rank == 1:
        values.flat[2] = np.inf
    return values


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
        coders = [Coder(count, keeps=ef != "none") for _ in range(workers)]
        server = Coder(count, keeps=ef != "none")
        for step in range(ROUNDS):
            q = ratio(ef, step)
            total = np.zeros(count, np.float32)
            for rank, coder in enumerate(coders):
                total = total + coder.code(gradient(rank, step, key, overflows).reshape(-1), q)
            sums[step, key] = server.code(total, q).reshape(shape)
    return sums


def on_devices(values: Floats) -> "list[mx.nd.NDArray]":
    """Return gradients of two devices, whose sum is `values`."""
    first = np.arange(values.size).reshape(values.shape) % 2 == 0
    return [
        mx.nd.array(np.where(of_device, values, np.float32(-0.0)), ctx=mx.cpu(device))
        for device, of_device in enumerate((first, ~first))
    ]


def check_sums(kvs: ScheduledKVS, ef: str) -> None:
    sums = expected(ef, kvs.num_workers)
    for step in range(ROUNDS):
        for key, shape in SHAPES.items():
            mine = on_devices(gradient(kvs.rank, step, key))
            # The sum of a worker's devices is coded once.
            outs = [mx.nd.zeros(shape, ctx=part.context) for part in mine]
            kvs.pushpull(key, mine, out=outs)
            for out in outs:
                np.testing.assert_array_equal(out.asnumpy(), sums[step, key], f"{key} {step}")
    out = mx.nd.zeros(SHAPES[5])
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


def fail_step(kvs: ScheduledKVS) -> None:
    """Step where workers differ; print whether a weight, in the store or pulled, has changed."""
    kvs.set_optimizer(mx.optimizer.SGD(learning_rate=1, wd=0.0))
    weight = mx.nd.zeros(SHAPES[5])
    try:
        kvs.pushpull(5, mx.nd.array(gradient(kvs.rank, 0, 5)), out=weight)
        weight.wait_to_read()
    except mx.base.MXNetError:
        stored = kvs._backend._tensors[5].stored
        print("weights changed:", has_changed(weight) or has_changed(stored), flush=True)
        raise


def has_changed(weight: mx.nd.NDArray) -> bool:
    """Return whether a weight is no longer 0; its update may have failed."""
    with contextlib.suppress(mx.base.MXNetError):
        weight.wait_to_read()  # MXNet raises an array's error once
    return bool(weight.asnumpy().any())


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
    if ef == "differs":
        fail_step(kvs)
    elif ef == "corrected":
        check_weights(kvs)
    else:
        check_sums(kvs, ef)
    kvs.close()


if __name__ == "__main__":
    main()
