"""An optimizer in a job of one worker, whose gradients may have a momentum all the same."""

import gc
from typing import Any, Iterator, List

import pytest
import torch
from torch import nn

import bytescheduler.torch as bps
from bytescheduler.errors import UsageError

NESTEROV = {"momentum": "nesterov", "mu": 0.9}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "off")
    bps.init()
    yield
    bps.shutdown()


def trained(wrap: bool, *, synchronizes: bool = False, uses_closure: bool = False) -> torch.Tensor:
    torch.manual_seed(1)
    model = nn.Linear(3, 2).double()
    inner = torch.optim.SGD(model.parameters(), 0.1, momentum=0 if wrap else 0.9, nesterov=not wrap)
    optimizer: Any = inner
    if wrap:
        optimizer = bps.DistributedOptimizer(inner, model=model, compression_params=NESTEROV)

    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.ones(1, 3).double()).tanh().sum()
        loss.backward()
        return loss

    for _ in range(6):
        if uses_closure:
            optimizer.step(evaluate)
            continue
        evaluate()
        if synchronizes and wrap:
            optimizer.synchronize()
            optimizer.synchronize()
        optimizer.step()
    return model.weight.detach()


@pytest.mark.parametrize("synchronizes", [False, True])
@pytest.mark.parametrize("uses_closure", [False, True])
def test_weights_equal_the_weights_of_nesterovs_sgd(synchronizes: bool, uses_closure: bool) -> None:
    ours = trained(True, synchronizes=synchronizes, uses_closure=uses_closure)
    assert torch.allclose(ours, trained(False, uses_closure=uses_closure), rtol=1e-12)


def test_a_script_sees_gradients_with_their_momentum() -> None:
    weight = nn.Parameter(torch.zeros(1))
    seen: List[float] = []
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD([weight], 0.5),
        [("weight", weight)],
        on_gradient=lambda param: seen.append(param.grad.item()),
        compression_params={"momentum": "nesterov", "mu": 0.5},
    )
    for _ in range(2):
        weight.grad = torch.ones(1)
        optimizer.step()
    assert seen == [1.5, 1.75]


@pytest.mark.parametrize("drops", ["optimizer", "script"])
def test_gradients_that_no_step_uses_leave_no_momentum(drops: str) -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD([weight], 1), compression_params={"momentum": "nesterov", "mu": 0.5}
    )
    for moved in (-1.5, -3.25):
        (64 * weight).sum().backward()
        optimizer.synchronize()
        if drops == "optimizer":
            optimizer.zero_grad()
        else:
            weight.grad = None
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert weight.item() == moved


def test_a_dropped_optimizer_leaves_no_hook() -> None:
    weight = nn.Parameter(torch.zeros(1))
    for _ in range(2):
        bps.DistributedOptimizer(torch.optim.SGD([weight], 1), compression_params=NESTEROV)
    gc.collect()
    assert not weight._post_accumulate_grad_hooks


def test_a_momentum_of_the_optimizer_is_refused_here_too() -> None:
    inner = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1, momentum=0.9)
    with pytest.raises(UsageError, match="group 0 of SGD has momentum 0.9 of its own"):
        bps.DistributedOptimizer(inner, compression_params=NESTEROV)


def test_a_closure_that_is_evaluated_again_is_refused() -> None:
    weight = nn.Parameter(torch.ones(1))
    with pytest.raises(UsageError, match="a step of LBFGS evaluates the loss itself"):
        bps.DistributedOptimizer(torch.optim.LBFGS([weight]), compression_params=NESTEROV)
