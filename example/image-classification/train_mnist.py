"""Train a digit classifier with the Module API over ScheduledKVS."""

import sys

import mxnet as mx
from common import networks, options, report

from bytescheduler.mxnet import ScheduledKVS


def main() -> int:
    """Train, report, and return the exit code."""
    args = options.parse(__doc__)
    options.seed_everything(args.seed)

    kvs = mx.kv.create(args.kv_store)
    if not args.no_bytescheduler:
        kvs = ScheduledKVS(kvs)  # the only added line

    dataset, images, labels = options.load_data(args, kvs.rank, kvs.num_workers)
    train = mx.io.NDArrayIter(
        images, labels, args.batch_size, shuffle=True, last_batch_handle="discard"
    )
    val = mx.io.NDArrayIter(dataset.val_images, dataset.val_labels, args.batch_size)

    module = mx.mod.Module(networks.symbol(args.network), context=mx.cpu())
    num_batches = len(labels) // args.batch_size
    epoch = report.Epoch(0, num_batches, args.batch_size, kvs.rank)
    accuracy = 0.0

    def end_of_epoch(number: int, *_: object) -> None:
        nonlocal epoch, accuracy
        accuracy = dict(module.score(val, "acc"))["accuracy"]
        epoch.finish(accuracy)
        if number + 1 < args.num_epochs:
            epoch = report.Epoch(number + 1, num_batches, args.batch_size, kvs.rank)

    module.fit(
        train,
        eval_metric="acc",
        kvstore=kvs,
        optimizer="sgd",
        optimizer_params={"learning_rate": args.lr, "momentum": args.mom},
        initializer=mx.init.Xavier(),
        num_epoch=args.num_epochs,
        batch_end_callback=lambda _: epoch.step(),
        epoch_end_callback=end_of_epoch,
    )
    params, _ = module.get_params()
    return report.finish(params, kvs.rank, accuracy, args.target_accuracy)


if __name__ == "__main__":
    sys.exit(main())
