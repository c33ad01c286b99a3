"""Train a digit classifier with PyTorch; the next step begins while the last sums still come."""

import argparse
import pathlib
import sys
import time
from typing import Tuple

import job
import models
import torch
import torch.nn.functional as F  # noqa: N812 - torch's habit

# The reader of digits, and of MNIST's files, is that of MXNet's examples; it needs no framework.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "image-classification"))
from common import data  # noqa: E402

NETWORKS = {"lenet": models.lenet, "mlp": models.mlp}


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--network", choices=sorted(NETWORKS), default="lenet")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a worker takes a step")
    parser.add_argument("--num-epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--mom", type=float, default=0.9, help="momentum")
    parser.add_argument("--data-dir", default=None, help="folder with MNIST's idx files")
    parser.add_argument(
        "--target-accuracy",
        type=float,
        default=0.0,
        help="exit with 1 if the final validation accuracy is below this (0 to 1)",
    )
    job.add_options(parser)
    args = parser.parse_args()
    for name in ("batch_size", "num_epochs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def tensors(
    images: "data.np.ndarray", labels: "data.np.ndarray", device: torch.device
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return images and labels where they are trained on."""
    return torch.tensor(images, device=device), torch.tensor(labels, device=device).long()


def accuracy_of(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images that the model knows."""
    model.eval()
    with torch.no_grad():
        found = model(images).argmax(1)
    model.train()
    return float((found == labels).float().mean())


def main() -> int:
    """Train, report, and return the exit code."""
    args = parse()
    try:
        digits = data.load(args.data_dir)
    except data.DataError as error:
        print(error, file=sys.stderr)
        return 2
    us = job.Job(args)
    torch.manual_seed(args.seed)
    images, labels = tensors(*data.shard(digits, us.rank, us.size), us.device)
    val_images, val_labels = tensors(digits.val_images, digits.val_labels, us.device)

    model = NETWORKS[args.network](images.shape[-1]).to(us.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.mom)
    optimizer = us.optimizer(model, optimizer)

    shuffle = torch.Generator().manual_seed(args.seed + us.rank)
    batches = len(labels) // args.batch_size
    accuracy = 0.0
    for epoch in range(args.num_epochs):
        begin = time.perf_counter()
        order = torch.randperm(len(labels), generator=shuffle).to(us.device)
        for batch in order[: batches * args.batch_size].split(args.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        accuracy = accuracy_of(model, val_images, val_labels)
        rate = batches * args.batch_size / (time.perf_counter() - begin)
        print(
            f"rank {us.rank} epoch {epoch}: {rate:.0f} samples/s, "
            f"validation accuracy {accuracy:.4f}",
            flush=True,
        )
    below = accuracy < args.target_accuracy
    missed = f"below the target of {args.target_accuracy:.4f}" if below else None
    return job.finish(us, model, f"validation accuracy {accuracy:.4f}", missed)


if __name__ == "__main__":
    sys.exit(main())
