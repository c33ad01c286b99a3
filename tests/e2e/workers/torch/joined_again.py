"""A worker of two jobs, one after the other; its argument: a file, made when a first life is lost.

Without the file, the process of the first agent ends in its first job, and its peer does nothing
until its own agent ends it.
"""

import os
import pathlib
import sys
import time

import torch

import bytescheduler.torch as bps

LONG_S = 60.0


def lose(life: pathlib.Path) -> None:
    """End this process if it belongs to the first agent; else stay until the agent ends it."""
    bps.barrier()
    if os.environ["GROUP_RANK"] == "0":
        life.touch()
        os._exit(3)
    time.sleep(LONG_S)


def main() -> None:
    """Sum in each job."""
    life = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    is_first = life is not None and not life.exists()
    for job in range(2):
        bps.init()
        total = bps.allreduce(torch.ones(3) * (bps.rank() + 1), average=False)
        count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        print(f"job {job}, {count} restarts, rank {bps.rank()}: {total.tolist()}", flush=True)
        if life is not None and is_first:
            lose(life)
        bps.shutdown()


main()
