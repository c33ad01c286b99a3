"""A model whose optimizer was wrapped, compiled and not; names are those of the oldest PyTorch."""

from typing import List

import torch
from torch import nn

import bytescheduler.torch as bps


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.arange(24.0).view(4, 6) / 24 * (step + rank + 1)


def trained(backend: str) -> List[torch.Tensor]:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = bps.DistributedOptimizer(torch.optim.Adam(net.parameters(), 0.1), model=net)
    called = torch.compile(net, backend=backend) if backend else net
    for step in range(4):
        optimizer.zero_grad()
        called(batch(step, bps.rank())).square().mean().backward()
        optimizer.step()
    assert optimizer.crosses
    weights = [weight.clone() for weight in net.state_dict().values()]
    optimizer.close()
    return weights


def alone() -> List[torch.Tensor]:
    """Return the weights of one process that has the batches of all workers."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        for rank in range(bps.size()):
            (net(batch(step, rank)).square().mean() / bps.size()).backward()
        optimizer.step()
    return list(net.state_dict().values())


def main() -> None:
    torch.set_num_threads(1)
    bps.init()
    want = alone()
    for backend in ("", "aot_eager"):
        ours = trained(backend)
        for weight, expected in zip(ours, want):
            torch.testing.assert_close(weight, expected)
        for other in bps.allgather_object(ours):
            assert all(torch.equal(*pair) for pair in zip(ours, other)), backend
    bps.shutdown()
    print(f"all is well with PyTorch {torch.__version__}")


main()
