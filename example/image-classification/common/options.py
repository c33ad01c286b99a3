"""The options of the examples, in MXNet's habit."""

import argparse
import os
import random
import sys
from typing import Tuple

import mxnet as mx
import numpy as np

from . import data, networks


def parse(description: str) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--network", choices=networks.NETWORKS, default="lenet")
    parser.add_argument(
        "--kv-store",
        default="dist_sync" if "DMLC_ROLE" in os.environ else "local",
        help="type of the stock store; under torchrun, mpirun and srun name dist_sync",
    )
    parser.add_argument("--batch-size", type=int, default=32, help="samples a worker takes a step")
    parser.add_argument("--num-epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--mom", type=float, default=0.9, help="momentum")
    parser.add_argument("--data-dir", default=None, help="folder with MNIST's idx files")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument(
        "--no-bytescheduler", action="store_true", help="train on the stock store alone"
    )
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


def seed_everything(seed: int) -> None:
    """Seed every generator that an example draws from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the generator that MXNet's initialisers use
    mx.random.seed(seed)


def load_data(
    args: argparse.Namespace, rank: int, num_workers: int
) -> Tuple[data.Dataset, np.ndarray, np.ndarray]:
    """Return the data set and this worker's part of it; say why and exit with 2 if it cannot be."""
    try:
        dataset = data.load(args.data_dir)
    except data.DataError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    images, labels = data.shard(dataset, rank, num_workers)
    if len(labels) < args.batch_size:
        print(
            f"error: --batch-size {args.batch_size} is more than the {len(labels)} samples that "
            "each worker has",
            file=sys.stderr,
        )
        sys.exit(2)
    return dataset, images, labels
