"""Train real networks with PyTorch over rate-limited hosts: stock DDP, and ours.

Each worker computes on the CPU. All arms begin with the same weights and take the same batches.
Printed as JSON are samples a second of all workers, the average loss of the last steps, and a
checksum of the weights. With two workers all arms add up the same numbers, so it fails if one ends
with other weights than the rest. Needs root (network namespaces), iproute2, torch and scikit-learn.

    python -m benchmarks.pytorch.train_torch --network resnet --rate 100mbit --out train-torch.json
"""

import argparse
import pathlib
import pydoc_data.topics
import statistics
import sys
import time
import zlib
from typing import Any, Callable, Dict, List, Tuple

from benchmarks.lab import arms as lab_arms
from benchmarks.lab import lab_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.pytorch import arms

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "example"
NETWORKS = ("resnet", "gpt2")
WARM_UP = 5
PLACES = 64  # letters that GPT-2 sees
Runs = List[List[Dict[str, Any]]]
# Draws inputs, and the result that belongs to them, with a generator.
Draw = Callable[[Any], Tuple[Any, Any]]


def _resnet(batch: int) -> Tuple[Any, Draw]:
    """Return a residual network, and what draws digits."""
    import models
    import torch
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    found = torch.tensor(labels)
    model = models.ResNet50(10, counts=(1, 1, 1, 1), inputs=1)

    def draw(chance: Any) -> Tuple[Any, Any]:  # noqa: ANN401 - torch comes late
        chosen = torch.randint(len(found), (batch,), generator=chance)
        images = torch.nn.functional.interpolate(pixels[chosen], scale_factor=4.0)
        return images, found[chosen]

    return model, draw


def _gpt2(batch: int) -> Tuple[Any, Draw]:
    """Return a small GPT-2, and what draws from the manual of Python."""
    import models
    import torch

    text = "\n".join(pydoc_data.topics.topics.values())
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    numbers = torch.tensor([letters[letter] for letter in text])
    model = models.GPT2(models.Sizes(len(letters), PLACES, width=128, heads=4, layers=4))

    def draw(chance: Any) -> Tuple[Any, Any]:  # noqa: ANN401 - torch comes late
        starts = torch.randint(len(text) - PLACES, (batch, 1), generator=chance)
        pieces = numbers[starts + torch.arange(PLACES + 1)]
        return pieces[:, :-1], pieces[:, 1:].flatten()

    return model, draw


def train(args: argparse.Namespace) -> None:
    """Run one worker and report what it reached."""
    import torch

    sys.path.insert(0, str(EXAMPLE / "pytorch"))
    from benchmarks.pytorch import ways

    torch.set_num_threads(1)
    torch.manual_seed(7)
    arm = arms.ARMS[args.arm]
    make = {"resnet": _resnet, "gpt2": _gpt2}[args.network]
    model, draw = make(args.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    seconds: List[float] = []
    losses: List[float] = []
    with ways.begin(model, optimizer, arm, 1) as way:
        chance = torch.Generator().manual_seed(way.rank)
        before = time.perf_counter()
        for _ in range(WARM_UP + args.steps):
            inputs, wanted = draw(chance)
            way.optimizer.zero_grad()
            scores = way.called(inputs).flatten(0, -2)
            loss = torch.nn.functional.cross_entropy(scores, wanted)
            loss.backward()
            way.optimizer.step()
            losses.append(loss.item())
            now = time.perf_counter()
            seconds.append(now - before)
            before = now
        checksum = 0
        weights = model.state_dict()  # with every update that is under way
        for name in sorted(name for name, _ in model.named_parameters()):
            checksum = zlib.crc32(weights[name].numpy().tobytes(), checksum)
        lab_job.report(
            {
                "samples_per_s": args.batch / statistics.median(seconds[WARM_UP:]),
                "loss": statistics.mean(losses[-WARM_UP:]),
                "weights": f"{checksum:08x}",
            }
        )


def summary(runs: Runs) -> Dict[str, Any]:
    """Return what the repeats of an arm reached, each a list of what its workers said."""
    rates = [sum(worker["samples_per_s"] for worker in workers) for workers in runs]
    losses = [statistics.mean(worker["loss"] for worker in workers) for workers in runs]
    weights = sorted({worker["weights"] for workers in runs for worker in workers})
    return {
        "samples_per_s": statistics.median(rates),
        "loss": statistics.median(losses),
        "weights": weights,
    }


def require_same_weights(runs: Dict[str, Runs]) -> None:
    """Compare the weights with which all workers of all arms ended.

    Raises
    ------
    SystemExit
        They differ.
    """
    weights = {arm: summary(of_arm)["weights"] for arm, of_arm in runs.items() if of_arm}
    if len({one for of_arm in weights.values() for one in of_arm}) > 1:
        raise SystemExit(f"they ended with different weights: {weights}")


def main() -> None:
    """Train with all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="resnet")
    parser.add_argument("--steps", type=options.count(), default=40)
    parser.add_argument("--batch", type=options.count(), default=8, help="samples a worker takes")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--repeats", type=options.count(), default=3)
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of each link")
    exact = [name for name, arm in arms.ARMS.items() if arm.is_exact]
    lab_arms.add_arms_option(parser, exact, "ddp,barrier,ours,ours-together")
    parser.add_argument("--timeout", type=float, default=300)
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--arm", choices=arms.ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.arm:
        train(args)
        return
    words = ["--network", args.network, "--steps", str(args.steps), "--batch", str(args.batch)]
    words += ["--lr", str(args.lr)]

    def run(arm: str) -> List[Dict[str, Any]]:
        worker = [sys.executable, "-m", "benchmarks.pytorch.train_torch", "--arm", arm, *words]
        return arms.run(arm, worker, args.timeout, lab_job.USUAL)

    about = {"network": args.network, "rate": args.rate}
    with lab_job.lab(args.rate):
        lab_arms.alternate(args, run, summary, about, require_same_weights)


if __name__ == "__main__":
    main()
