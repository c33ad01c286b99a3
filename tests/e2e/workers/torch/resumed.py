"""Trains six steps: ``resumed.py save PATH`` saves in the middle, ``load`` begins there.

What is saved has updates that wait; what is loaded goes on in other processes.  Each worker prints
a digest of the weights and states that it ends with.
"""

import hashlib
import pickle
import sys
from typing import Any

import torch
from models import OPTIMIZERS, Model, loss_of, new_model

import bytescheduler.torch as bps

STEPS = 6
MIDDLE = 3

Optimizer = Any  # DistributedOptimizer


def digest(model: Model, optimizer: Optimizer) -> str:
    states = model.state_dict()  # makes the updates that wait
    weights = {name: states[name] for name, _ in model.named_parameters()}
    plain = pickle.dumps(_plain([weights, optimizer.state_dict()]))
    return hashlib.blake2b(plain, digest_size=8).hexdigest()


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return nested values as numbers and texts alone, dictionaries in the order of their keys.

    The states stand in the order in which sums came first.
    """
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return sorted((str(key), _plain(entry)) for key, entry in value.items())
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def main(task: str, path: str) -> None:
    torch.set_num_threads(1)
    bps.init()
    model = new_model()
    optimizer: Optimizer = bps.DistributedOptimizer(
        OPTIMIZERS["adamw"](model), model=model, crossing=True
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    begin = 0
    if task == "load":
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        begin = MIDDLE
    for step in range(begin, STEPS):
        if step == MIDDLE and task == "save" and bps.rank() == 0:
            assert optimizer._stepper._updates.waiting
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            torch.save({name: part.state_dict() for name, part in parts.items()}, path)
        optimizer.zero_grad()
        loss_of(model, step, bps.rank()).backward()
        optimizer.step()
        scheduler.step()
    print(f"ended with {digest(model, optimizer)}")
    bps.shutdown()


main(*sys.argv[1:])
