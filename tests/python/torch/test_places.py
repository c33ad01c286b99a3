"""Scripts that change the groups of their optimizer, or freeze and unfreeze parameters."""

from typing import Callable, List

import pytest
import torch
from inline_snapshot import snapshot
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
ONES = torch.ones(2, 3)


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)])


def sgd(model: nn.Sequential) -> torch.optim.Optimizer:
    """Two groups; the first layer is frozen."""
    model[0].requires_grad_(False)
    groups = [{"params": list(part.parameters())} for part in (model[:2], model[2])]
    groups[1]["lr"] = 0.01  # type: ignore[assignment]
    return torch.optim.SGD(groups, 0.5, momentum=0.5)


@pytest.mark.parametrize("crossing", [True, False])
def test_a_parameter_that_is_no_longer_frozen_is_refused_until_it_is_taken(
    make_stepper: Make, crossing: bool
) -> None:
    model = layers()
    stepper = make_stepper(model, sgd(model), crossing=crossing)
    model(ONES).sum().backward()
    stepper.step(None)
    model[0].requires_grad_(True)
    model(ONES).sum().backward()
    with pytest.raises(UsageError, match=r"0.weight: it has a gradient.*optimizer.refresh\(\)"):
        stepper.step(None)
    stepper.zero_grad(True)
    stepper.refresh(None)
    before = model[0].weight.detach().clone()
    model(ONES).sum().backward()
    stepper.step(None)
    stepper.synchronize()
    assert not torch.equal(before, model[0].weight)


@pytest.mark.parametrize("crossing", [True, False])
def test_parameters_that_were_added_without_us_are_refused_until_they_are_taken(
    make_stepper: Make, crossing: bool
) -> None:
    model = layers()
    inner = torch.optim.SGD(model[0].parameters(), 0.5)
    stepper = make_stepper(model, inner, crossing=crossing)
    for number, add in enumerate(
        (
            lambda part: inner.add_param_group({"params": list(part.parameters())}),
            lambda part: inner.param_groups[0]["params"].extend(part.parameters()),
        ),
        1,
    ):
        model(ONES).sum().backward()
        add(model[number])
        with pytest.raises(UsageError, match=r"optimizer.refresh\(\) on all workers"):
            stepper.step(None)
        stepper.zero_grad(True)
        stepper.refresh(None)
        model(ONES).sum().backward()
        stepper.step(None)


@pytest.mark.parametrize("crossing", [True, False])
def test_groups_may_change_places(make_stepper: Make, crossing: bool) -> None:
    model, alone = layers(), layers()
    inner, plain = sgd(model), sgd(alone)
    stepper = make_stepper(model, inner, crossing=crossing)
    for number in range(4):
        model(ONES).sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
        alone(ONES).sum().backward()
        plain.step()
        plain.zero_grad()
        if number == 1:
            for each in (inner, plain):
                each.param_groups.reverse()
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_a_parameter_that_was_taken_out_is_refused(make_stepper: Make) -> None:
    model = layers()
    inner = sgd(model)
    stepper = make_stepper(model, inner)
    taken: List[object] = inner.param_groups.pop()["params"]
    assert len(taken) == 2
    model(ONES).sum().backward()
    with pytest.raises(UsageError, match="2.weight: ") as raised:
        stepper.step(None)
    assert str(raised.value) == snapshot(
        "2.weight: it was taken out of the optimizer's groups; leave it there and freeze it by "
        "requires_grad_(False), or wrap a new optimizer"
    )


class Skipping(nn.Module):
    """Uses its first layer only where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, skips: bool) -> torch.Tensor:
        return self.second(x if skips else self.first(x))


def test_an_update_that_still_waits_has_the_numbers_of_its_group_before(make_stepper: Make) -> None:
    models = [Skipping(), Skipping()]
    inner, plain = (
        torch.optim.SGD(
            [
                {"params": list(model.first.parameters()), "lr": 0.5},
                {"params": list(model.second.parameters()), "lr": 0.01},
            ]
        )
        for model in models
    )
    stepper = make_stepper(models[0], inner)
    for skips in (False, True):
        for model in models:
            model(ONES, skips).sum().backward()
        if skips:
            for each in (inner, plain):
                each.param_groups.reverse()
        stepper.step(None)
        stepper.zero_grad(True)
        plain.step()
        plain.zero_grad()
    stepper.synchronize()
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        assert torch.equal(one, other)
