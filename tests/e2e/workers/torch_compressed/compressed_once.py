"""One optimizer with compressed gradients, which is closed before the job ends."""

import torch
from methods import METHODS
from models import loss_of, new_model

import bytescheduler.torch as bps

bps.init()
model = new_model()
optimizer = bps.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), 0.1),
    model=model,
    compression_params=METHODS["onebit, vanilla"],
)
for step in range(3):
    optimizer.zero_grad()
    loss_of(model, step, bps.rank()).backward()
    optimizer.step()
optimizer.close()
bps.allreduce(torch.ones(1))
bps.shutdown()
