"""A worker that trains a network on digits with one compression after another.

``digits.py NETWORK SEEDS METHODS``: METHODS is JSON, a dictionary of compression by name, or null
for none.  The last line has the accuracies and checksums of weights in JSON, by name, of each seed.
"""

import json
import pathlib
import sys
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS, ScheduledTrainer

sys.path.append(str(pathlib.Path(__file__).resolve().parents[4]))
from benchmarks.jobs.train import EXAMPLE, resnet20  # noqa: E402

sys.path.insert(0, str(EXAMPLE))
from common import data, networks  # noqa: E402

BATCH = 32
MOMENTUM = 0.9


class Schedule(NamedTuple):
    """How long a network trains, and with which learning rate."""

    learning_rate: float
    epochs: int
    late: int  # from this epoch on the learning rate is a tenth


# randomk sends an element in one step of 32, with all that was kept of it.  So LeNet trains
# long with a low rate: with 0.05 and 12 epochs randomk loses 3.6 points.
SCHEDULES = {"lenet": Schedule(0.02, 24, 18), "resnet20": Schedule(0.05, 12, 9)}


class Digits(NamedTuple):
    """The images that this worker trains on, and those that all are judged by."""

    images: np.ndarray
    labels: np.ndarray
    val_images: mx.nd.NDArray
    val_labels: np.ndarray


def weights_of(net: mx.gluon.HybridBlock) -> int:
    """Return a checksum of what all workers have alike."""
    checksum = 0
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            checksum = zlib.crc32(parameter.data().asnumpy().tobytes(), checksum)
    return checksum


def trained(
    network: str, compression: Optional[Dict[str, Any]], seed: int, digits: Digits
) -> Tuple[float, int]:
    """Return the accuracy at the end, and the checksum of the weights."""
    np.random.seed(seed)
    mx.random.seed(seed)
    with mx.name.NameManager():  # names, and so keys, are those of every other training
        net = resnet20() if network == "resnet20" else networks.block(network)
    net.initialize(mx.init.Xavier())
    net(digits.val_images[:1])  # every shape is known
    net.hybridize()
    schedule = SCHEDULES[network]
    store = ScheduledKVS()
    trainer = ScheduledTrainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": schedule.learning_rate, "momentum": MOMENTUM},
        kvstore=store,
        compression_params=compression,
    )
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    shuffled = np.random.RandomState(1000 * seed + store.rank)
    for epoch in range(schedule.epochs):
        if epoch == schedule.late:
            trainer.set_learning_rate(schedule.learning_rate / 10)
        order = shuffled.permutation(len(digits.labels))
        for at in range(0, len(order) - BATCH + 1, BATCH):
            mine = order[at : at + BATCH]
            with mx.autograd.record():
                value = loss(
                    net(mx.nd.array(digits.images[mine])), mx.nd.array(digits.labels[mine])
                )
            value.backward()
            trainer.step(BATCH * store.num_workers)
    found = net(digits.val_images).asnumpy().argmax(axis=1)
    accuracy, weights = float(np.mean(found == digits.val_labels)), weights_of(net)
    store.close()
    return accuracy, weights


def main() -> None:
    network, seeds, methods = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    place = ScheduledKVS(mx.kv.create("dist_sync"))  # a process without a store leaves the job
    whole = data.load()
    images, labels = data.shard(whole, place.rank, place.num_workers)
    digits = Digits(images, labels, mx.nd.array(whole.val_images), whole.val_labels)
    ends: Dict[str, List[Tuple[float, int]]] = {name: [] for name in methods}
    for seed in range(1, 1 + seeds):
        for name, compression in methods.items():
            ends[name].append(trained(network, compression, seed, digits))
            print(f"seed {seed}, {name}: {ends[name][-1][0]:.4f}", flush=True)
    place.barrier()
    print(json.dumps(ends), flush=True)
    place.close()


if __name__ == "__main__":
    main()
