"""Twenty steps; each worker prints BYTESCHEDULER_COMM and a hash of its weights."""

import hashlib
import os
import sys

import torch
from models import OPTIMIZERS, loss_of, new_model

import bytescheduler.torch as bps

STEPS = 20


def main() -> None:
    torch.set_num_threads(1)
    bps.init()
    model = new_model()
    optimizer = bps.DistributedOptimizer(OPTIMIZERS["adam"](model), model=model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, bps.rank()).backward()
        optimizer.step()
    states = model.state_dict()  # makes the updates that wait
    digest = hashlib.sha256()
    for name, _ in model.named_parameters():
        digest.update(states[name].numpy().tobytes())
    wide = bps.push_pull(torch.full((3,), 1.0, dtype=torch.float64), average=False, name="wide")
    assert wide.tolist() == [bps.size()] * 3, wide
    numbers = torch.arange(20_000, dtype=torch.float32)
    whole = bps.push_pull(numbers * (bps.rank() + 1), average=False, name="whole")
    assert torch.equal(whole, numbers * (bps.size() * (bps.size() + 1) // 2)), whole
    comm = os.environ["BYTESCHEDULER_COMM"]
    sys.stdout.write(f"{comm}, rank {bps.rank()} of {bps.size()}: {digest.hexdigest()}\n")
    sys.stdout.flush()
    bps.shutdown()


main()
