"""A worker of PyTorch that sums large tensors; its argument is the number of rounds.

The model has as many bytes as that of copies.py.  Behind it come means of coded gradients, equally
many whatever the argument.
"""

import hashlib
import sys
from typing import Dict

import numpy as np
import torch

import bytescheduler.torch as bps

COUNT = 1_000_000
CODED = {
    "onebit": {"compressor": "onebit", "scaling": True, "ef": "vanilla"},
    "topk": {"compressor": "topk", "k": 0.25, "ef": "vanilla"},
}
CODED_COUNT = 131_100  # three units
CODED_STEPS = 4


def digest_of_means(params: Dict[str, object]) -> str:
    """Return the digest of the means of all steps."""
    weight = torch.nn.Parameter(torch.zeros(CODED_COUNT))
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD([weight], 1.0), [("weight", weight)], compression_params=params
    )
    means = hashlib.sha256()
    for step in range(CODED_STEPS):
        optimizer.zero_grad()
        numbers = np.random.RandomState(1000 * step + bps.rank()).normal(0, 1, CODED_COUNT)
        weight.grad = torch.from_numpy(numbers.astype(np.float32))
        optimizer.synchronize()
        assert weight.grad is not None
        means.update(weight.grad.numpy().tobytes())
        optimizer.step()
    optimizer.close()
    return means.hexdigest()


bps.init()
whole = torch.full((COUNT,), float(bps.rank() + 1))
fractions = (torch.arange(COUNT) % 1009 + 1).float() / (bps.rank() + 3)
digest = hashlib.sha256()
for _ in range(int(sys.argv[1])):
    sums = [
        bps.allreduce_async(values, average=False, name=name)
        for name, values in (("whole", whole), ("fractions", fractions))
    ]
    total, parts = [bps.synchronize(handle) for handle in sums]
    everyone = bps.size()
    assert torch.equal(total, torch.full((COUNT,), everyone * (everyone + 1) / 2))
    digest.update(parts.numpy().tobytes())
print(f"summed {digest.hexdigest()}", flush=True)
for name, params in CODED.items():
    print(f"{name} made {digest_of_means(params)}", flush=True)
bps.shutdown()
