"""Measure the training of well-known networks on made-up data: samples a second."""

import argparse
import statistics
import sys
import time
from typing import List, Tuple

import job
import models
import torch
import torch.nn.functional as F  # noqa: N812 - torch's habit

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
IMAGES = ("resnet50", "vgg16")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(models.MODELS), default="resnet50")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="sgd")
    parser.add_argument("--batch-size", type=int, default=4, help="samples a worker takes a step")
    parser.add_argument("--pixels", type=int, default=224, help="side of an image")
    parser.add_argument("--places", type=int, default=128, help="words of a sample")
    parser.add_argument("--warm-up", type=int, default=2, help="steps that do not count")
    parser.add_argument("--steps", type=int, default=10)
    job.add_options(parser)
    args = parser.parse_args()
    for name in ("batch_size", "steps", "places"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.pixels < 64:
        parser.error("--pixels must be at least 64")
    return args


def made_up(args: argparse.Namespace, device: torch.device) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return a batch and what is to be found in it."""
    if args.model in IMAGES:
        shape = (args.batch_size, 3, args.pixels, args.pixels)
        labels = torch.randint(1000, (args.batch_size,))
        return torch.randn(shape).to(device), labels.to(device)
    words = torch.randint(models.BERT_LARGE.words, (args.batch_size, args.places)).to(device)
    return words, words.flatten()


def main() -> int:
    """Train, report, and return the exit code."""
    args = parse()
    us = job.Job(args)
    torch.manual_seed(args.seed)
    model = models.MODELS[args.model]().to(us.device)
    # The fused update of all parameters is the fastest that torch has.
    make = OPTIMIZERS[args.optimizer]
    optimizer = us.optimizer(model, make(model.parameters(), lr=1e-4, fused=True))
    torch.manual_seed(args.seed + us.rank)
    batch, wanted = made_up(args, us.device)
    seconds: List[float] = []
    before = time.perf_counter()
    for _ in range(args.warm_up + args.steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch).flatten(0, -2), wanted)
        loss.backward()
        optimizer.step()
        loss.item()  # a GPU has computed it
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
    rate = args.batch_size / statistics.median(seconds[args.warm_up :])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"rank {us.rank} of {us.size}: {args.model}, {parameters / 1e6:.1f} M parameters, "
        f"{rate:.2f} samples/s a worker",
        flush=True,
    )
    return job.finish(us, model, f"{us.average(rate) * us.size:.2f} samples/s of all workers")


if __name__ == "__main__":
    sys.exit(main())
