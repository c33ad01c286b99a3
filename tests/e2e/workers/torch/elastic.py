"""A worker that goes on from a checkpoint, with as many workers as there are.

It ends once a file is there, in a job of one worker that has gone on.  Its argument: its agent's
name, of which a file holds the number of this process.
"""

import os
import pathlib
import sys
import time

import torch

import bytescheduler.torch as bps

number = pathlib.Path(f"{sys.argv[1]}.pid")
number.write_text(str(os.getpid()))
bps.init()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loads = bps.rank() == 0 and os.path.exists("job.pt")
saved = bps.broadcast_object(torch.load("job.pt") if loads else None)
step = 0
if saved is not None:
    model.load_state_dict(saved["model"])
    step = saved["step"]
optimizer = bps.DistributedOptimizer(optimizer, model=model)
first = step
print(f"rank {bps.rank()} of {bps.size()} begins at step {step}", flush=True)
while not (bps.size() == 1 and first > 0 and step > first + 10 and os.path.exists("stop")):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    step += 1
    if step % 10 == 0:
        if bps.rank() == 0:
            torch.save({"model": model.state_dict(), "step": step}, "job.pt.part")
            os.replace("job.pt.part", "job.pt")
        print(f"rank {bps.rank()} is at step {step}", flush=True)
    time.sleep(0.02)
bps.shutdown()
number.unlink()
