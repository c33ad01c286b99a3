"""Worker 1 makes a mistake in its third step: mistake.py raise, finally, exit or os-exit."""

import os
import sys

import torch

import bytescheduler.torch as bps

ENDING = sys.argv[1]


def train() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model=model)
    for step in range(10):
        if step == 3 and bps.rank() == 1:
            if ENDING == "os-exit":
                os._exit(3)
            raise SystemExit(3) if ENDING == "exit" else ValueError("my bug")
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()


bps.init()
if ENDING == "finally":
    try:
        train()
    finally:
        bps.shutdown()
else:
    train()
