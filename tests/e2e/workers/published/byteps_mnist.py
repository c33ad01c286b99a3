"""Trains a classifier of digits with the calls that scripts of BytePS make; data is made up."""

import argparse

import byteps.torch as bps
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--fp16-pushpull", action="store_true")
    return parser.parse_args()


def metric_average(value: float, name: str) -> float:
    tensor = torch.tensor(value)
    return bps.push_pull(tensor, name=name).item()


def main() -> None:
    args = options()
    bps.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(bps.local_rank())
    images = torch.randn(256, 64)
    data = TensorDataset(images, images[:, :10].argmax(1))
    sampler = DistributedSampler(data, num_replicas=bps.size(), rank=bps.rank())
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10), nn.LogSoftmax(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * bps.size(), momentum=args.momentum)
    optimizer = bps.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=bps.Compression.fp16 if args.fp16_pushpull else bps.Compression.none,
    )
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        total = 0.0
        for batch, labels in loader:
            optimizer.zero_grad()
            loss = functional.nll_loss(model(batch), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        mean = metric_average(total / len(loader), "avg_loss")
        if bps.rank() == 0:
            print(f"epoch {epoch}: loss {mean:.4f}", flush=True)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"rank {bps.rank()} ends with {weights.double().sum().item():.12e}", flush=True)


if __name__ == "__main__":
    main()
