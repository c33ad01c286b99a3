"""Trains a small model of PyTorch, to be recorded: ``recorded.py STEPS``.

It prints the names of its parameters in the order of forward, which is not that of registration.
"""

import sys

import torch
from torch import nn

import bytescheduler.torch as bps

LAYERS = 6
WIDTH = 256
BATCH = 16


class Reversed(nn.Module):
    """Runs its layers from the last to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in reversed(self.layers):
            x = torch.relu(layer(x))
        return x


torch.set_num_threads(1)
bps.init()
model = Reversed()
optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model=model)
forward = [f"layers.{at}.{kind}" for at in reversed(range(LAYERS)) for kind in ("weight", "bias")]
print("FORWARD", *forward)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(BATCH, WIDTH)).sum().backward()
    optimizer.step()
optimizer.close()
bps.shutdown()
