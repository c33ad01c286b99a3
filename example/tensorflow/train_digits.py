"""Train a digit classifier with TensorFlow: by Keras' fit, or by a tape in a function."""

import argparse
import hashlib
import pathlib
import sys
from typing import Tuple

import tensorflow as tf

import bytescheduler.keras as bps
from bytescheduler.tensorflow import DistributedGradientTape, broadcast_variables

# The reader of digits, and of MNIST's files, is that of MXNet's examples; it needs no framework.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "image-classification"))
from common import data  # noqa: E402


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--loop", choices=["fit", "tape"], default="fit")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a worker takes a step")
    parser.add_argument("--num-epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate of one worker")
    parser.add_argument("--data-dir", default=None, help="folder with MNIST's idx files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--target-accuracy",
        type=float,
        default=0.0,
        help="exit with 1 if the final validation accuracy is below this (0 to 1)",
    )
    args = parser.parse_args()
    for name in ("batch_size", "num_epochs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def network(pixels: int) -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((pixels, pixels, 1)),
            tf.keras.layers.Conv2D(16, 3, activation="relu", padding="same"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def fit(model: tf.keras.Model, images: object, labels: object, args: argparse.Namespace) -> None:
    """Train by Keras' own loop."""
    callbacks = [
        bps.callbacks.BroadcastGlobalVariablesCallback(0),
        bps.callbacks.LearningRateWarmupCallback(args.lr * bps.size(), warmup_epochs=2),
        bps.callbacks.MetricAverageCallback(),
    ]
    model.optimizer = bps.DistributedOptimizer(model.optimizer)
    model.fit(
        images,
        labels,
        batch_size=args.batch_size,
        epochs=args.num_epochs,
        callbacks=callbacks,
        verbose=2 if bps.rank() == 0 else 0,
    )


def loop(model: tf.keras.Model, images: object, labels: object, args: argparse.Namespace) -> None:
    """Train by a loop of the script's own."""
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    broadcast_variables([*model.variables, *optimizer.variables], 0)
    batches = tf.data.Dataset.from_tensor_slices((images, labels))
    batches = batches.shuffle(len(labels), seed=args.seed + bps.rank())
    batches = batches.batch(args.batch_size, drop_remainder=True)

    @tf.function
    def step(batch: Tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        with DistributedGradientTape(tf.GradientTape()) as tape:
            loss = model.compute_loss(y=batch[1], y_pred=model(batch[0], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for epoch in range(args.num_epochs):
        for batch in batches:
            loss = step(batch)
        print(f"rank {bps.rank()} epoch {epoch}: loss {float(loss):.4f}", flush=True)


def main() -> int:
    """Train, report, and return the exit code."""
    args = parse()
    try:
        digits = data.load(args.data_dir)
    except data.DataError as error:
        print(error, file=sys.stderr)
        return 2
    bps.init()
    tf.keras.utils.set_random_seed(args.seed + bps.rank())
    images, labels = data.shard(digits, bps.rank(), bps.size())
    images = images.transpose(0, 2, 3, 1)  # TensorFlow wants channels last
    model = network(images.shape[1])
    model.compile(
        tf.keras.optimizers.Adam(args.lr),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    (fit if args.loop == "fit" else loop)(model, images, labels, args)
    values = (digits.val_images.transpose(0, 2, 3, 1), digits.val_labels)
    accuracy = model.evaluate(*values, verbose=0)[1]
    weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights()))
    print(
        f"rank {bps.rank()}: validation accuracy {accuracy:.4f}, weights {weights.hexdigest()}",
        flush=True,
    )
    bps.shutdown()
    if accuracy < args.target_accuracy:
        print(f"below the target of {args.target_accuracy:.4f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
