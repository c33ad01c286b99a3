"""Guards that rest from the update of their weights to the next step."""

import gc
from typing import Callable, List

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
ONES = torch.ones(1, 3)


def row() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))


def hooks(model: nn.Module) -> List[int]:
    return [len(module._forward_pre_hooks) for module in model]


def stepped(stepper: Stepper, model: nn.Module) -> None:
    model(ONES).sum().backward()
    stepper.step(None)
    stepper.zero_grad(True)


def test_modules_have_a_hook_while_their_weights_wait(make_stepper: Make) -> None:
    model = row()
    stepper = make_stepper(model)
    for _ in range(3):
        stepped(stepper, model)
        assert hooks(model) == [1, 1, 1]
        model[1](ONES)
        assert hooks(model) == [0, 0, 0]


def test_a_module_that_uses_another_bundle_or_has_modules_within_keeps_its_hook(
    make_stepper: Make,
) -> None:
    parent = nn.Linear(3, 3)
    parent.child = nn.Linear(3, 3)
    model = nn.Sequential(parent, nn.Linear(3, 1000), nn.Linear(1000, 3), nn.Linear(3, 3))
    stepper = make_stepper(model)  # the larger weights of two modules travel alone
    for _ in range(2):
        parent.child(model(ONES)).sum().backward()
        stepper.step(None)
        stepper.synchronize()
    assert hooks(model) == [1, 1, 1, 0]
    assert hooks([parent.child]) == [0]


def test_a_guard_comes_first_again(make_stepper: Make) -> None:
    seen: List[torch.Tensor] = []
    model = row()
    stepper = make_stepper(model)
    model[0].register_forward_pre_hook(lambda module, _: seen.append(module.weight.clone()))
    for _ in range(2):
        stepped(stepper, model)
        model(ONES)
        assert torch.equal(seen[-1], model[0].weight)
        stepped(stepper, model)
        assert hooks(model) == [2, 1, 1]
        assert next(iter(model[0]._forward_pre_hooks.values())) is stepper._guards._guards[model[0]]


@pytest.mark.filterwarnings("ignore")
def test_no_guard_rests_from_where_a_compiler_begins(make_stepper: Make, job: FakeJob) -> None:
    gc.collect()  # optimizers of other tests hear of a compiler too
    model, alone = row(), row()
    stepper = make_stepper(model)
    inner = torch.optim.SGD(alone.parameters(), 0.5)
    called: nn.Module = model
    for step in range(5):
        if step == 2:
            model(ONES)
            assert hooks(model) == [0, 0, 0]
            called = torch.compile(model, backend="eager")
        called(ONES).sum().backward()
        assert hooks(model) == ([0, 0, 0] if step == 1 else [1, 1, 1])
        stepper.step(None)
        stepper.zero_grad(True)
        alone(ONES).sum().backward()
        inner.step()
        inner.zero_grad()
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


@pytest.mark.parametrize("rests", [True, False])
def test_a_closed_optimizer_leaves_no_hook(make_stepper: Make, rests: bool) -> None:
    model = row()
    stepper = make_stepper(model)
    stepped(stepper, model)
    if rests:
        model(ONES)
    stepper.close()
    assert hooks(model) == [0, 0, 0]
