"""A worker of PyTorch that averages large tensors; its argument is the number of rounds.

The model has as many bytes as that of copies.py.
"""

import hashlib
import sys

import torch

import bytescheduler.torch as bps

COUNT = 1_000_000

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
bps.shutdown()
