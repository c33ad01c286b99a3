"""Trains many small parameters, of which each worker uses others, in another order.

Both workers compute the gradients of both, and so the weights of one process.
"""

from typing import List, Optional

import torch
from torch import nn

import bytescheduler.torch as bps

LAYERS, STEPS, WIDTH = 40, 6, 5


class Branches(nn.Module):
    """Runs a third of its layers, or two thirds, in an order of the worker's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.large = nn.Linear(WIDTH, 4000)

    def forward(self, x: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        used = [layer for at, layer in enumerate(self.layers) if (at + step) % 3 <= rank]
        for layer in reversed(used) if (rank + step) % 2 else used:
            x = torch.tanh(layer(x))
        return self.large(x).square().mean()


def made() -> Branches:
    torch.manual_seed(11)
    return Branches()


def data(rank: int, step: int) -> torch.Tensor:
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(step * 2 + rank))


def gradients(model: nn.Module, rank: int, step: int) -> List[Optional[torch.Tensor]]:
    model.zero_grad()
    model(data(rank, step), rank, step).backward()
    return [param.grad for param in model.parameters()]


def trained_alone() -> nn.Module:
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.01)
    for step in range(STEPS):
        pairs = zip(gradients(model, 0, step), gradients(model, 1, step))
        for param, pair in zip(model.parameters(), pairs):
            there = [grad for grad in pair if grad is not None]
            param.grad = sum(there) / 2 if there else None
        optimizer.step()
    return model


torch.set_num_threads(1)
bps.init()
for name, options in {
    "a barrier": {"crossing": False},
    "guards": {"crossing": True},
    "no model": {"crossing": True, "model": None},
}.items():
    model = made()
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.01),
        named_parameters=[(f"{name}.{of}", param) for of, param in model.named_parameters()],
        **{"model": model, **options},
    )
    for step in range(STEPS):
        if step == 3:  # a round that nothing wants
            model(data(bps.rank(), step), bps.rank(), step).backward()
        optimizer.zero_grad()
        model(data(bps.rank(), step), bps.rank(), step).backward()
        optimizer.step()
    optimizer.close()
    for one, other in zip(model.parameters(), trained_alone().parameters()):
        assert torch.equal(one, other), name
    print(f"with {name} it is the same")
bps.shutdown()
