"""Gradients in memory: strides and shapes that change, or differ between workers."""

import copy
from typing import Any, Callable, List

import pytest
import torch
from fake_job import FakeJob
from inline_snapshot import snapshot
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3))


def channels_last(model: nn.Module) -> None:
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def transposed(model: nn.Module) -> None:
    for param in model.parameters():
        if param.dim() == 4:
            param.data = param.data.transpose(2, 3).contiguous().transpose(2, 3)


@pytest.mark.parametrize("crossing", [True, False])
@pytest.mark.parametrize("change", [channels_last, transposed])
def test_strides_that_change_after_wrapping_permute_no_element(
    make_stepper: Make, singly: None, change: Callable[[nn.Module], None], crossing: bool
) -> None:
    model = convolutions()
    alone = copy.deepcopy(model)
    plain = torch.optim.SGD(alone.parameters(), 0.1, momentum=0.9)
    inner = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    stepper = make_stepper(model, inner, crossing=crossing)
    for each in (model, alone):
        change(each)
    for step in range(4):
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        for each, optimizer in ((model, stepper), (alone, plain)):
            each(x).square().mean().backward()
            optimizer.step(None)
            optimizer.zero_grad(True)
    stepper.flush()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_where_workers_have_other_strides_gradients_travel_contiguous(
    job: FakeJob, make_stepper: Make, singly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = convolutions()
    channels_last(model)

    def with_a_contiguous_worker(mine: List[Any]) -> List[Any]:
        if not mine or not isinstance(mine[0], tuple):
            return []
        return [mine, [param.contiguous().stride() for param in convolutions().parameters()]]

    monkeypatch.setattr(job.objects, "gather_unequal", with_a_contiguous_worker)
    stepper = make_stepper(model, crossing=False)
    strides = [slot.stride for slot in stepper.gradients.slots]
    assert strides == [param.stride() for param in convolutions().parameters()]
    model(torch.ones(1, 3, 8, 8)).sum().backward()
    want = [param.grad.clone() for param in model.parameters() if param.grad is not None]
    stepper.synchronize()
    for param, grad in zip(model.parameters(), want):
        assert torch.equal(param.grad, grad)  # type: ignore[arg-type]


def test_another_shape_after_wrapping_is_named(make_stepper: Make) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    stepper = make_stepper(model, crossing=False)
    model[0].weight.data = torch.ones(2, 3)
    model[0].bias.data = torch.ones(2)
    model[0].weight.grad = torch.ones(2, 3)
    with pytest.raises(UsageError) as raised:
        stepper.step(None)
    assert str(raised.value) == snapshot(
        "0.weight: it changed from (3, 3) to (2, 3); change the model first, wrap then"
    )
