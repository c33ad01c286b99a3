"""Wraps a module with the calls that scripts of BytePS make; data is made up."""

import byteps.torch as bps
import torch
from byteps.torch.parallel import DistributedDataParallel as DDP
from torch import nn
from torch.nn import functional


def main() -> None:
    bps.init()
    torch.manual_seed(bps.rank())
    torch.set_num_threads(1)
    model = DDP(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        data = torch.randn(8, 16)
        optimizer.zero_grad()
        functional.cross_entropy(model(data), (data.sum(1) > 0).long()).backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"rank {bps.rank()} ends with {weights.double().sum().item():.12e}", flush=True)
    bps.shutdown()


if __name__ == "__main__":
    main()
