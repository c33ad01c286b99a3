"""Two workers of which one does not go on: the other one learns it where it waits."""

import sys
import time

import torch
from torch import nn

import bytescheduler.torch as bps
from bytescheduler.errors import PeerLost

CASE = sys.argv[1]


def stop(step: int) -> bool:
    """Return whether this worker makes no further step."""
    if bps.rank() == 0 or step < 3:
        return False
    if CASE == "slow":
        print("waits", flush=True)
        time.sleep(60)
    return True


def train(model: nn.Module, crossing: bool) -> None:
    optimizer = bps.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), 0.01), model=model, crossing=crossing
    )
    for step in range(6):
        if stop(step):
            return
        optimizer.zero_grad()
        try:
            loss = model(torch.ones(2, 3)).sum()
        except PeerLost as error:
            print(f"forward of step {step}: {error}", flush=True)
            raise
        except KeyboardInterrupt:
            print(f"forward of step {step}: interrupted", flush=True)
            raise
        loss.backward()
        optimizer.step()
        print(f"made step {step}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    bps.init()
    train(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), crossing=True)
    bps.shutdown()


main()
