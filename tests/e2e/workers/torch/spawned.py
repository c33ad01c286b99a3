"""Two workers of torch.multiprocessing.spawn: worker 1 raises, and each writes its error."""

import os
import sys

import torch
import torch.multiprocessing as mp

import bytescheduler.torch as bps


def worker(rank: int, port: str) -> None:
    """Train; worker 1 raises in step 3."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port)
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
    bps.init()
    model = torch.nn.Linear(4, 2)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model=model)
    try:
        for step in range(1000):
            if rank == 1 and step == 3:
                raise RuntimeError("the reason")
            model(torch.ones(3, 4)).pow(2).mean().backward()
            optimizer.step()
    except RuntimeError as error:
        print(f"worker {rank}: {error}", flush=True)
        raise


if __name__ == "__main__":
    mp.spawn(worker, args=(sys.argv[1],), nprocs=2)
