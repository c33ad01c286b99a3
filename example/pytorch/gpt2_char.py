"""Train a small GPT-2, letter by letter, on the manual that every Python has (pydoc's topics)."""

import argparse
import math
import pathlib
import pydoc_data.topics
import sys
import time
from typing import Optional

import job
import models
import torch
import torch.nn.functional as F  # noqa: N812 - torch's habit


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--text", type=pathlib.Path, default=None, help="train on this file instead"
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128, help="a multiple of 32")
    parser.add_argument("--places", type=int, default=64, help="letters that the model sees")
    parser.add_argument("--batch-size", type=int, default=16, help="pieces a worker takes a step")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=2e-3, help="the highest learning rate")
    parser.add_argument("--every", type=int, default=50, help="steps between two reports")
    parser.add_argument(
        "--target-loss",
        type=float,
        default=math.inf,
        help="exit with 1 if the loss of the last steps is above this",
    )
    job.add_options(parser)
    args = parser.parse_args()
    for name in ("layers", "places", "batch_size", "steps", "every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.width < 32 or args.width % 32:
        parser.error("--width must be a multiple of 32")
    return args


def read(path: Optional[pathlib.Path]) -> str:
    """Return the text to learn."""
    if path is not None:
        return path.read_text(errors="replace")
    return "\n".join(pydoc_data.topics.topics.values())


def main() -> int:
    """Train, report, and return the exit code."""
    args = parse()
    text = read(args.text)
    letters = sorted(set(text))
    if len(text) < 2 * args.places:
        print(f"{args.text}: want at least {2 * args.places} letters", file=sys.stderr)
        return 2
    us = job.Job(args)
    torch.manual_seed(args.seed)
    number_of = {letter: number for number, letter in enumerate(letters)}
    numbers = torch.tensor([number_of[letter] for letter in text], device=us.device)

    sizes = models.Sizes(len(letters), args.places, args.width, args.width // 32, args.layers)
    model = models.GPT2(sizes).to(us.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    optimizer = us.optimizer(model, optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, args.lr / 10)

    places = torch.arange(args.places + 1, device=us.device)
    chance = torch.Generator().manual_seed(args.seed + us.rank)
    begin, total, loss = time.perf_counter(), torch.zeros(()), math.inf
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(text) - args.places, (args.batch_size, 1), generator=chance)
        pieces = numbers[starts.to(us.device) + places]
        optimizer.zero_grad()
        scores = model(pieces[:, :-1])
        value = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
        value.backward()
        optimizer.step()
        schedule.step()
        total += value.detach().cpu()
        if step % args.every == 0 or step == args.steps:
            count = (step - 1) % args.every + 1
            loss = us.average(float(total) / count)
            seconds = time.perf_counter() - begin
            rate = count * args.batch_size * args.places / seconds
            print(f"rank {us.rank} step {step}: loss {loss:.3f}, {rate:.0f} letters/s", flush=True)
            begin, total = time.perf_counter(), torch.zeros(())
    missed = f"above the target of {args.target_loss:g}" if loss > args.target_loss else None
    return job.finish(us, model, f"loss {loss:.3f}", missed)


if __name__ == "__main__":
    sys.exit(main())
