"""Trains a classifier of digits with the calls that scripts of Horovod make; data is made up."""

import argparse
from typing import Tuple

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Digits(nn.Module):
    """Two convolutions, a dropout and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()
        )
        self.drop = nn.Dropout2d(0.2)
        self.classes = nn.Linear(16 * 3 * 3, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(self.classes(self.drop(self.features(images)).flatten(1)), 1)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    return parser.parse_args()


def made_up(count: int) -> TensorDataset:
    """Return images whose brightest row is their class."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = 0.1 * torch.randn(count, 1, 14, 14, generator=generator)
    images[torch.arange(count), 0, labels] += 1.0
    return TensorDataset(images, labels)


def loader_of(data: TensorDataset, batch_size: int) -> Tuple[DataLoader, DistributedSampler]:
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    return DataLoader(data, batch_size=batch_size, sampler=sampler), sampler


def mean_of(value: float, name: str) -> float:
    return hvd.allreduce(torch.tensor(value), name=name).item()


def train(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loader, sampler = loader_of(made_up(256), args.batch_size)
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = functional.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            if number % 4 == 0 and hvd.rank() == 0:
                print(f"epoch {epoch} [{number}/{len(loader)}] loss {loss.item():.4f}", flush=True)
        test(model, args.batch_size)


def test(model: nn.Module, batch_size: int) -> None:
    model.eval()
    loader, sampler = loader_of(made_up(64), batch_size)
    loss, right = 0.0, 0.0
    with torch.no_grad():
        for images, labels in loader:
            output = model(images)
            loss += functional.nll_loss(output, labels, reduction="sum").item()
            right += (output.argmax(1) == labels).float().sum().item()
    loss = mean_of(loss / len(sampler), "avg_loss")
    right = mean_of(right / len(sampler), "avg_accuracy")
    if hvd.rank() == 0:
        print(f"test: loss {loss:.4f}, accuracy {right:.2%}", flush=True)


def main() -> None:
    args = options()
    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    model = Digits()
    scale = hvd.size()
    if args.use_adasum:
        scale = hvd.local_size() if hvd.nccl_built() else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * scale, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    train(args, model, optimizer)
    weights = torch.cat([value.flatten() for value in model.state_dict().values()])
    print(f"rank {hvd.rank()} ends with {weights.double().sum().item():.12e}", flush=True)


if __name__ == "__main__":
    main()
