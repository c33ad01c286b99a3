"""Trains a small model of PyTorch until rank 0 finds the file ``stop``."""

import pathlib

import torch
from torch import nn

import bytescheduler.torch as bps

WIDTH = 256
STEPS = 20_000  # a minute or more

torch.set_num_threads(1)
bps.init()
model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(6)])
optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model=model)
for step in range(STEPS):
    optimizer.zero_grad()
    model(torch.ones(8, WIDTH)).sum().backward()
    optimizer.step()
    over = bps.rank() == 0 and pathlib.Path("stop").exists()
    if bps.push_pull(torch.tensor([float(over)]), average=False, name="over").item():
        break
    if step == 3:
        print("under way", flush=True)
optimizer.close()
bps.shutdown()
