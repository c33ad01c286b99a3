"""accelerate with two workers: over Gloo, over the backend, and with our optimizer besides.

The folder is the job's, for checkpoints.
"""

import os
import pathlib
import sys
from typing import Any, Dict, List, NamedTuple

import accelerate
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bytescheduler.torch as bps

Anything = Any  # types of packages are not read
BACKEND = "bytescheduler"
EPOCHS = 2
CLIP = 0.1


class Run(NamedTuple):
    """A way to train."""

    options: Dict[str, Anything]
    clips: bool = False


RUNS = {
    "plain": Run({}),
    "clipped": Run({}, clips=True),
    "two passes": Run({"gradient_accumulation_steps": 2}),
    "four passes, a short last round": Run({"gradient_accumulation_steps": 4}),
    "bf16": Run({"mixed_precision": "bf16"}),
}


class Trained(NamedTuple):
    """What a training leaves."""

    weights: List[torch.Tensor]
    losses: List[torch.Tensor]
    waited: int  # weights that waited behind a step


def data() -> DataLoader:
    numbers = torch.Generator().manual_seed(0)
    inputs = torch.randn(48, 16, generator=numbers)
    return DataLoader(
        TensorDataset(inputs, torch.randint(0, 4, (48,), generator=numbers)), batch_size=4
    )


def train(run: Run, folder: pathlib.Path, *, ours: bool = False) -> Trained:
    """Train; save all behind the first epoch, and load it again."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    accelerator = accelerate.Accelerator(cpu=True, **run.options)
    assert accelerator.num_processes == 2
    accelerate.utils.set_seed(3)
    model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    passes = run.options.get("gradient_accumulation_steps", 1)
    wrapped = None
    if ours:
        bps.init()
        model = accelerator.prepare_model(model, evaluation_mode=True)
        wrapped = bps.DistributedOptimizer(optimizer, model=model, backward_passes_per_step=passes)
        optimizer, loader, scheduler = accelerator.prepare(wrapped, data(), scheduler)
    else:
        model, optimizer, loader, scheduler = accelerator.prepare(
            model, optimizer, data(), scheduler
        )
    losses, waited = [], 0
    for epoch in range(EPOCHS):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                if run.clips:
                    if wrapped is not None:
                        wrapped.synchronize()
                    accelerator.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                waited += sum(type(param) is not nn.Parameter for param in model.parameters())
                scheduler.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach()))
        if epoch == 0:
            accelerator.save_state(str(folder))
            accelerator.wait_for_everyone()
            spoil(model, optimizer)
            accelerator.load_state(str(folder))
    weights = [param.detach().clone() for param in model.parameters()]
    if wrapped is not None:
        wrapped.close()
    return Trained(weights, losses, waited)


@torch.no_grad()
def spoil(model: nn.Module, optimizer: Anything) -> None:
    """Change all that a checkpoint has to bring back."""
    for param in model.parameters():
        param.fill_(9.0)
    for group in optimizer.param_groups:
        group["lr"] = 9.0


def check_equal(mine: Trained, other: Trained, what: str) -> None:
    for ours, theirs in ((mine.weights, other.weights), (mine.losses, other.losses)):
        assert len(ours) == len(theirs)
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs)), what


def main(place: str) -> None:
    folder = pathlib.Path(place)
    # Its store is a file, as the next group's may not meet that of a worker which is late.
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=size)
    gloo = {name: train(run, folder / f"gloo {name}") for name, run in RUNS.items()}
    dist.destroy_process_group()
    dist.init_process_group(BACKEND)
    for name, run in RUNS.items():
        check_equal(train(run, folder / f"ddp {name}"), gloo[name], f"{name}, DDP")
        ours = train(run, folder / f"ours {name}", ours=True)
        check_equal(ours, gloo[name], f"{name}, our optimizer")
        assert (ours.waited > 0) != run.clips, (name, ours.waited)
        print(f"{name}: weights are Gloo's", flush=True)
    dist.destroy_process_group()
    print("all is well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
