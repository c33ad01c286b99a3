"""Workers of which the second does not go on: the other ones learn it where they wait."""

import itertools
import os
import signal
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import bytescheduler.torch as bps
from bytescheduler.errors import PeerLost

CASE = sys.argv[1]


class Loading(threading.Thread):
    """Loads data by forked workers over and over, and says how often."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ends = threading.Event()

    def run(self) -> None:
        for times in itertools.count(1):
            if self._ends.is_set():
                return
            loaded = sum(len(each) for each in DataLoader(range(12), 3, num_workers=1))
            sys.stdout.write(f"loads {loaded}, time {times}\n")
            sys.stdout.flush()

    def end(self) -> None:
        """Let it end, and wait for that."""
        self._ends.set()
        if self.is_alive():
            self.join()


def stop(step: int) -> bool:
    """Return whether this worker makes no further step."""
    if bps.rank() != 1 or step < 3:
        return False
    if CASE == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
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
    loading = Loading()
    if bps.rank() == 0 and CASE == "slow":
        loading.start()
    try:
        train(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), crossing=True)
    finally:
        loading.end()
    bps.shutdown()


main()
