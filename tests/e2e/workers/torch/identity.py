"""Twenty steps with each optimizer: across the barrier, with it, and in one process alone."""

import sys
from typing import Dict, Tuple

import torch
from models import OPTIMIZERS, Make, Model, loss_of, new_model, same

import bytescheduler.torch as bps

STEPS = 20
Trained = Tuple[Dict[str, torch.Tensor], Dict[str, object]]


def takes(step: int) -> bool:
    return step % 4 != 2  # in some steps a layer is left out by all workers


def end(model: Model, optimizer: torch.optim.Optimizer) -> Trained:
    states = model.state_dict()  # makes the updates that wait
    weights = {name: states[name].clone() for name, _ in model.named_parameters()}
    return weights, optimizer.state_dict()


def in_the_job(make: Make, crossing: bool) -> Trained:
    model = new_model()
    optimizer = bps.DistributedOptimizer(make(model), crossing=crossing, model=model)
    assert optimizer.crosses == crossing
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)
    for step in range(STEPS):
        model.takes = takes(step)
        optimizer.zero_grad()
        loss_of(model, step, bps.rank()).backward()
        optimizer.step()
        scheduler.step()
        if step == 7:  # evaluation between two steps
            model.eval()
            with torch.inference_mode():
                loss_of(model, 99, 0)
            model.train()
    assert optimizer.crosses == crossing
    trained = end(model, optimizer)
    optimizer.close()
    return trained


def alone(make: Make) -> Trained:
    """Average the workers' gradients in the order of their ranks, in this process."""
    model = new_model()
    optimizer = make(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)
    for step in range(STEPS):
        model.takes = takes(step)
        sums: Dict[str, torch.Tensor] = {}
        for rank in range(bps.size()):
            model.zero_grad()
            loss_of(model, step, rank).backward()
            for name, param in model.named_parameters():
                if param.grad is not None:
                    known = sums.get(name)
                    sums[name] = param.grad.clone() if known is None else known + param.grad
        for name, param in model.named_parameters():
            param.grad = sums[name] * (1.0 / bps.size()) if name in sums else None
        optimizer.step()
        scheduler.step()
    return end(model, optimizer)


def compare(name: str, one: Trained, other: Trained) -> None:
    for key in one[0]:
        assert torch.equal(one[0][key], other[0][key]), f"{name}: {key}"
    assert same(one[1], other[1]), f"{name}: states of the optimizer"


def main() -> None:
    torch.set_num_threads(1)
    bps.init()
    for name in sys.argv[1:] or OPTIMIZERS:
        across = in_the_job(OPTIMIZERS[name], True)
        compare(f"{name}, alone", across, alone(OPTIMIZERS[name]))
        compare(f"{name}, barrier", across, in_the_job(OPTIMIZERS[name], False))
        assert not torch.equal(across[0]["scale"], torch.ones(8))
        print(f"{name} is the same")
    bps.shutdown()


main()
