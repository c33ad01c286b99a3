"""Trains a small residual network with the calls of Horovod's scripts for ImageNet.

It resumes from the latest checkpoint, accumulates gradients of several passes, warms the learning
rate up, and averages metrics; data is made up.
"""

import argparse
import math
import os
import pathlib

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.norm(self.convolution(x)))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Residual(8),
        Residual(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


class Metric:
    """The mean of a number, over batches and workers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = torch.tensor(0.0)
        self.count = torch.tensor(0.0)

    def update(self, value: torch.Tensor) -> None:
        self.total += hvd.allreduce(value.detach().cpu(), name=self.name)
        self.count += 1

    @property
    def avg(self) -> torch.Tensor:
        return self.total / self.count


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint-format", default="checkpoint-{epoch}.pt")
    parser.add_argument("--batches-per-allreduce", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--base-lr", type=float, default=0.0125)
    parser.add_argument("--warmup-epochs", type=float, default=1)
    parser.add_argument("--wd", type=float, default=0.00005)
    parser.add_argument("--fp16-allreduce", action="store_true")
    return parser.parse_args()


def adjust(optimizer: torch.optim.Optimizer, epoch: float, args: argparse.Namespace) -> None:
    """Warm up from the rate of one worker to that of all, then decay."""
    if epoch < args.warmup_epochs:
        factor = (epoch * (hvd.size() - 1) / args.warmup_epochs + 1) / hvd.size()
    else:
        factor = 0.1 ** int(epoch // 30)
    for group in optimizer.param_groups:
        group["lr"] = args.base_lr * hvd.size() * args.batches_per_allreduce * factor


def save(args: argparse.Namespace, epoch: int, model: nn.Module, optimizer: object) -> None:
    if hvd.rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, args.checkpoint_format.format(epoch=epoch))


def main() -> None:
    args = options()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    first = 0
    for epoch in range(args.epochs, 0, -1):
        if os.path.exists(args.checkpoint_format.format(epoch=epoch)):
            first = epoch
            break
    first = hvd.broadcast(torch.tensor(first), root_rank=0, name="resume_from_epoch").item()
    images = torch.randn(64, 3, 8, 8)
    data = TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    whole = args.batch_size * args.batches_per_allreduce
    loader = DataLoader(data, batch_size=whole, sampler=sampler)
    model = network()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.base_lr * hvd.size(), momentum=0.9, weight_decay=args.wd
    )
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=args.batches_per_allreduce,
        op=hvd.Average,
    )
    if first > 0 and hvd.rank() == 0:
        saved = torch.load(args.checkpoint_format.format(epoch=first))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(first, args.epochs):
        model.train()
        sampler.set_epoch(epoch)
        loss_of_all = Metric("train_loss")
        for number, (batch, labels) in enumerate(loader):
            adjust(optimizer, epoch + number / len(loader), args)
            optimizer.zero_grad()
            for at in range(0, len(batch), args.batch_size):
                part, part_labels = (x[at : at + args.batch_size] for x in (batch, labels))
                loss = functional.cross_entropy(model(part), part_labels)
                loss_of_all.update(loss)
                loss.div_(math.ceil(float(len(batch)) / args.batch_size))
                loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss_of_all.avg.item():.4f}", flush=True)
        save(args, epoch + 1, model, optimizer)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    saved_epochs = len(list(pathlib.Path().glob("checkpoint-*.pt")))
    print(f"rank {hvd.rank()} ends with {weights.double().sum().item():.12e}", flush=True)
    print(f"rank {hvd.rank()} began at {first}, saw {saved_epochs} checkpoints", flush=True)


if __name__ == "__main__":
    main()
