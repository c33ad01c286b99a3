"""A worker whose buffer takes another shape while a module trains; all workers hear of it."""

import sys

import torch
from torch import nn

import bytescheduler.torch as bps

CHANGING = int(sys.argv[1])  # the worker


def main() -> None:
    torch.set_num_threads(1)
    bps.init()
    ddp = bps.DistributedDataParallel(nn.BatchNorm1d(3))
    ddp.module.register_buffer("large", torch.zeros(1 << 20))
    for step in range(6):
        if step == 3 and bps.rank() == CHANGING:
            ddp.module.large = torch.zeros(2, 3)
        try:
            ddp(torch.randn(4, 3)).sum().backward()
        except Exception as error:
            print(f"step {step}: {error}", flush=True)
            raise
        ddp.zero_grad()
    bps.shutdown()


main()
