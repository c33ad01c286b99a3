"""Trains a new model in each fold, then sums under many names; the memory of the server stays.

The folds have models of different sizes.  Every other fold drops its optimizer instead of closing
it, each worker at another moment.  Then each fold has a module in place of an optimizer.
"""

import gc

import torch
from server_memory import server_bytes
from torch import nn

import bytescheduler.torch as bps

FOLDS, NAMES, NAME_BYTES = 6, 60, 512 << 10
MODEL_BYTES = 4 * 1000 * 1200


def train(fold: int) -> None:
    """Train the model of a fold, and end its optimizer."""
    torch.manual_seed(100 * bps.rank() + fold)
    width = 1000 + 30 * fold
    net = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 1200), nn.Linear(1200, 3))
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.01), model=net)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(8, 6)).square().mean().backward()
        optimizer.step()
    optimizer.synchronize()
    if fold % 2:
        optimizer.close()


def train_module(fold: int) -> None:
    """Train a module of `DistributedDataParallel` in a fold, and close it."""
    width = 1000 + 30 * fold
    net = nn.Sequential(nn.Linear(6, width), nn.Linear(width, 1200))
    module = bps.DistributedDataParallel(net)
    for _ in range(3):
        module(torch.ones(8, 6)).square().mean().backward()
    module.close()


torch.set_num_threads(1)
bps.init()
sizes = []
for fold in range(FOLDS):
    train(fold)
    if bps.rank() == fold % 2:
        gc.collect()
    sizes.append(server_bytes())
modules = []
for fold in range(FOLDS):
    train_module(fold)
    gc.collect()
    modules.append(server_bytes())
names = []
for at in range(NAMES):
    value = torch.full((NAME_BYTES // 4,), float(at))
    total = bps.push_pull(value, name=f"metric{at}", average=False)
    assert total[0] == 2 * at
    names.append(server_bytes())
assert bps.push_pull(torch.ones(NAME_BYTES // 4), name="metric0", average=False)[0] == 2
for word, kept in (("folds", sizes), ("modules", modules), ("names", names)):
    print(word, *(size >> 10 for size in kept))
# Without giving back, a fold has two sums of its model there, and so has a name.  Of the first two
# folds one may be given back already.
print("folds end as they began:", max(sizes[2:]) < max(sizes[:2]) + 1.5 * MODEL_BYTES)
print("modules end as they began:", max(modules[2:]) < max(modules[:2]) + 1.5 * MODEL_BYTES)
print("names end as ten did:", names[-1] < names[9] + 5 * NAME_BYTES)
bps.shutdown()
