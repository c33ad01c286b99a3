"""Train a digit classifier with Gluon over ScheduledKVS."""

import sys

import mxnet as mx
from common import networks, options, report
from mxnet import autograd, gluon

from bytescheduler.mxnet import ScheduledKVS


def accuracy_of(net: gluon.Block, loader: gluon.data.DataLoader) -> float:
    """Return the share of right answers on `loader`'s samples."""
    metric = mx.metric.Accuracy()
    for images, labels in loader:
        metric.update([labels], [net(images)])
    return float(metric.get()[1])


def main() -> int:
    """Train, report, and return the exit code."""
    args = options.parse(__doc__)
    options.seed_everything(args.seed)

    kvs = mx.kv.create(args.kv_store)
    if not args.no_bytescheduler:
        kvs = ScheduledKVS(kvs)  # the only added line

    dataset, images, labels = options.load_data(args, kvs.rank, kvs.num_workers)
    train = gluon.data.DataLoader(
        gluon.data.ArrayDataset(images, labels),
        args.batch_size,
        shuffle=True,
        last_batch="discard",
    )
    val = gluon.data.DataLoader(
        gluon.data.ArrayDataset(dataset.val_images, dataset.val_labels), args.batch_size
    )

    net = networks.block(args.network)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": args.lr, "momentum": args.mom},
        kvstore=kvs,
    )
    accuracy = 0.0
    for number in range(args.num_epochs):
        epoch = report.Epoch(number, len(train), args.batch_size, kvs.rank)
        for inputs, targets in epoch.batches(train):
            with autograd.record():
                losses = loss(net(inputs), targets)
            losses.backward()
            trainer.step(args.batch_size * kvs.num_workers)
        accuracy = accuracy_of(net, val)
        epoch.finish(accuracy)
    params = {name: value.data() for name, value in net.collect_params().items()}
    return report.finish(params, kvs.rank, accuracy, args.target_accuracy)


if __name__ == "__main__":
    sys.exit(main())
