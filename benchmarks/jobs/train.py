"""Train real networks on real images over rate-limited hosts: stock, P3, ours.

Each worker trains on its part of scikit-learn's digits with Gluon, on the CPU; all arms begin with
the same weights and take the same batches. Printed as JSON are samples a second of all workers
(without the first epoch; the median of the repeats), the accuracy, and a checksum of the weights:
arms add up the same numbers, so it fails if one ends with others than the rest. The arm stock is
MXNet as it comes, which updates on its servers; in stock-best workers update, as in the other arms,
and servers share arrays from 10,000 numbers on. Its weights were seen to differ; that is told, in
the JSON as `other_weights`, and fails nothing. Needs root (network namespaces), iproute2, mxnet and
scikit-learn.

    python -m benchmarks.jobs.train --network resnet20 --rate 100mbit --out train.json

With `--compression` arms that compress gradients alternate with plain ones. Their weights need only
be those of all their workers. `curve` has the accuracy behind each epoch, and the seconds of
training until then. `reached_s` has the seconds after which an arm has 97 % of the accuracy with
which the plain arm ends. The program plot draws it.

    python -m benchmarks.jobs.train --compression onebit,topk,int8,bf16 --epochs 12 --repeats 3 \
        --out train-compression-lenet.json
"""

import argparse
import pathlib
import statistics
import sys
import time
import zlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from benchmarks.lab import arms, coded, lab_job, machine, options
from benchmarks.lab.output import add_out_option

if TYPE_CHECKING:  # only workers import it
    import mxnet as mx

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "example" / "image-classification"


def resnet20() -> "mx.gluon.nn.HybridBlock":
    """Return a residual network of 20 layers with ten outputs (He et al. 2016, section 4.2)."""
    import mxnet as mx

    nn = mx.gluon.nn

    class Block(nn.HybridBlock):  # type: ignore[misc]
        def __init__(self, channels: int, stride: int) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            for index, step in enumerate((stride, 1)):
                self.body.add(nn.Conv2D(channels, 3, step, 1, use_bias=False), nn.BatchNorm())
                if index == 0:
                    self.body.add(nn.Activation("relu"))
            self.skip = nn.Conv2D(channels, 1, stride, use_bias=False) if stride > 1 else None

        def hybrid_forward(
            self,
            F: ModuleType,
            x: "mx.sym.Symbol",  # noqa: N803 - MXNet's name
        ) -> "mx.sym.Symbol":
            return F.relu(self.body(x) + (self.skip(x) if self.skip else x))

    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, 1, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    for channels in (16, 32, 64):
        for index in range(3):
            net.add(Block(channels, 2 if channels > 16 and index == 0 else 1))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


def deep() -> "mx.gluon.nn.HybridBlock":
    """Return twelve convolutions, of which the last two, the large ones, are named 10 and 11.

    Names sort as 0, 1, 10, 11, 2, ..., and Gluon's trainer numbers parameters so.
    """
    import mxnet as mx

    nn = mx.gluon.nn
    net = nn.HybridSequential()
    for channels in (32,) * 10:
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"))
    net.add(nn.Conv2D(256, 3, 2, 1, activation="relu"), nn.Conv2D(256, 3, 2, 1, activation="relu"))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


# All but our engine without MXNet, which trains nothing; and stock at its best: workers update the
# weights, as in the other arms, and servers share arrays as small as those of these networks.
BEST = "stock-best"
ARMS = [*(arm for arm in lab_job.ARMS if not arm.startswith("native")), BEST]
SHARED_FLOATS = {"MXNET_KVSTORE_BIGARRAY_BOUND": "10000"}
USUAL = "stock,p3,kvstore,ours-fifo,ours-off,ours"
ENOUGH = 0.97  # the share of the accuracy with which the plain arm ends
NETWORKS: "Dict[str, Callable[[], mx.gluon.nn.HybridBlock]]" = {"resnet20": resnet20, "deep": deep}


def train(args: argparse.Namespace) -> None:
    """Run one worker and print what it reached."""
    import mxnet as mx
    import numpy as np

    sys.path.insert(0, str(EXAMPLE))
    from common import data, networks

    store = mx.kv.create("dist_sync")
    if args.arm != BEST and lab_job.is_ours(args.arm):
        from bytescheduler.mxnet import ScheduledKVS

        store = ScheduledKVS(store)
    mx.random.seed(7)
    digits = data.load()
    images, labels = data.shard(digits, store.rank, store.num_workers)
    own = NETWORKS.get(args.network)
    net = own() if own else networks.block(args.network)
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(images[:1]))  # every shape is known, and so are the weights
    net.hybridize()
    trainer = mx.gluon.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": args.lr, "momentum": 0.9},
        kvstore=store,
        # P3's servers cannot.
        update_on_kvstore=False if args.arm in ("p3", BEST) else None,
        compression_params=lab_job.COMPRESSION.get(args.arm),
    )
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    batches = len(labels) // args.batch
    rates: List[float] = []
    curve: List[Tuple[float, float]] = []
    trained_s = 0.0
    for _ in range(args.epochs):
        begin = time.perf_counter()
        for index in range(batches):
            mine = slice(index * args.batch, (index + 1) * args.batch)
            with mx.autograd.record():
                value = loss(net(mx.nd.array(images[mine])), mx.nd.array(labels[mine]))
            value.backward()
            trainer.step(args.batch * store.num_workers)
        mx.nd.waitall()
        took_s = time.perf_counter() - begin
        trained_s += took_s
        rates.append(batches * args.batch / took_s)
        found = net(mx.nd.array(digits.val_images)).asnumpy().argmax(axis=1)
        curve.append((trained_s, float(np.mean(found == digits.val_labels))))
    checksum = 0
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            checksum = zlib.crc32(parameter.data().asnumpy().tobytes(), checksum)
    lab_job.report(
        {
            "samples_per_s": statistics.median(rates[1:]),
            "accuracy": curve[-1][1],
            "curve": curve,
            "weights": f"{checksum:08x}",
        }
    )


Runs = Dict[str, List[List[Dict[str, Any]]]]  # by arm and repeat, what each worker said


def weights_of(of_arm: List[List[Dict[str, Any]]]) -> List[str]:
    """Return the weights with which workers of an arm ended, each once."""
    return sorted({worker["weights"] for workers in of_arm for worker in workers})


def differ(weights: Dict[str, List[str]]) -> bool:
    """Return whether there is more than one among them."""
    return len({one for of_arm in weights.values() for one in of_arm}) > 1


def require_same_weights(runs: Runs) -> None:
    """Compare the weights with which all workers of all repeats ended, but those of `BEST`.

    Arms that compress are compared run by run: random numbers of jobs differ.

    Raises
    ------
    SystemExit
        They differ.
    """
    weights = {arm: weights_of(of_arm) for arm, of_arm in _uncompressed(runs).items()}
    weights.pop(BEST, None)
    if differ(weights):
        raise SystemExit(f"they ended with different weights: {weights}")
    for arm in runs.keys() & lab_job.COMPRESSION.keys():
        for workers in runs[arm]:
            if len(weights_of([workers])) > 1:
                raise SystemExit(f"{arm} ended with different weights: {weights_of([workers])}")


def _uncompressed(runs: Runs) -> Runs:
    return {arm: of for arm, of in runs.items() if of and arm not in lab_job.COMPRESSION}


def other_weights(runs: Runs) -> Dict[str, Any]:
    """Return the weights of `BEST` for the JSON, if they differ, or are not those of the rest."""
    weights = {arm: weights_of(of_arm) for arm, of_arm in _uncompressed(runs).items()}
    return {"other_weights": {BEST: weights[BEST]}} if BEST in weights and differ(weights) else {}


def curve_of(of_arm: List[List[Dict[str, Any]]]) -> List[Tuple[float, float]]:
    """Return the seconds until the end of each epoch, and the accuracy then: medians of workers."""
    epochs = zip(*(worker["curve"] for workers in of_arm for worker in workers))
    return [
        (
            round(statistics.median(seconds for seconds, _ in points), 3),
            statistics.median(accuracy for _, accuracy in points),
        )
        for points in epochs
    ]


def reached(runs: Runs) -> Dict[str, Any]:
    """Return after how many seconds arms were accurate enough, for the JSON; None: never.

    It is empty where nothing is compressed, and until the plain arm has ended.
    """
    if not runs.get(coded.PLAIN) or not runs.keys() & lab_job.COMPRESSION.keys():
        return {}
    enough = ENOUGH * summary(runs[coded.PLAIN])["accuracy"]
    found: Dict[str, Optional[float]] = {}
    for arm, of_arm in runs.items():
        later = (seconds for seconds, accuracy in curve_of(of_arm) if accuracy >= enough)
        found[arm] = next(later, None)
    return {"enough": round(enough, 4), "reached_s": found}


def summary(of_arm: List[List[Dict[str, Any]]]) -> Dict[str, Any]:
    """Return what the repeats of an arm reached, each a list of what its workers said."""
    return {
        "samples_per_s": statistics.median(
            sum(worker["samples_per_s"] for worker in workers) for workers in of_arm
        ),
        "accuracy": statistics.median(
            worker["accuracy"] for workers in of_arm for worker in workers
        ),
        "curve": curve_of(of_arm),
        "weights": weights_of(of_arm),
    }


def main() -> None:
    """Train with all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=("mlp", "lenet", *NETWORKS), default="lenet")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument(
        "--batch", type=options.count(), default=32, help="samples a worker and step"
    )
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--rate", type=lab_job.rate, default="100mbit", help="of each link")
    lab_job.add_shape_options(parser)
    arms.add_arms_option(parser, ARMS)
    coded.add_option(parser)
    parser.add_argument("--timeout", type=float, default=300)
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.epochs < 2:
        parser.error("--epochs: want at least 2, as the first one is not counted")
    if args.arm:
        train(args)
        return
    args.arms = coded.arms_of(args.compression, args.arms or []) or USUAL.split(",")
    if "ours-tuned" in args.arms:
        options.require_tuner(parser)
    shape = lab_job.shape_of(parser, args)
    words = [
        word
        for name in ("network", "epochs", "batch", "lr")
        for word in (f"--{name}", str(getattr(args, name)))
    ]

    def run(arm: str) -> List[Dict[str, Any]]:
        worker = [sys.executable, "-m", "benchmarks.train", "--arm", arm, *words]
        if arm == BEST:
            return lab_job.run("stock", worker, SHARED_FLOATS, args.timeout, shape=shape)
        return lab_job.run(arm, worker, {}, args.timeout, shape=shape)

    about = {"network": args.network, "rate": args.rate, "shape": shape._asdict()}
    with lab_job.lab(args.rate, shape):
        found = arms.alternate(
            args,
            run,
            summary,
            about,
            require_same_weights,
            lambda runs: {**other_weights(runs), **reached(runs)},
        )
    if "other_weights" in found:
        weights = {arm: row["weights"] for arm, row in found["medians"].items() if row}
        print(f"{BEST} ended with other weights: {weights}", file=sys.stderr)


if __name__ == "__main__":
    main()
