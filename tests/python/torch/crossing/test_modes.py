"""Modes around a forward pass, which makes updates: they neither see nor change them."""

import copy
from typing import Any, Callable, List

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]


class Doubling(TorchFunctionMode):
    """Changes a weight twice as far, and remembers what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: List[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self.names.append(getattr(func, "__name__", ""))
        result = func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if self.names[-1] == "add_" else result


@pytest.mark.parametrize("has_model", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_a_mode_of_functions_sees_no_update(
    make_stepper: Make, has_model: bool, count: int
) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    alone = copy.deepcopy(model)
    named = None if has_model else list(model.named_parameters())
    inner = torch.optim.SGD(model.parameters(), 0.1)
    stepper = make_stepper(model if has_model else None, inner, named_parameters=named)
    plain = torch.optim.SGD(alone.parameters(), 0.1)
    modes = [Doubling() for _ in range(count)]
    for _ in range(4):
        losses = []
        for module in (model, alone):
            with torch.device("cpu"), modes[0], modes[-1]:
                losses.append(module(torch.ones(1, 3)).square().sum())
            losses[-1].backward()
        assert torch.equal(*losses)
        stepper.step(None)
        plain.step()
        stepper.zero_grad(True)
        plain.zero_grad()
    assert stepper.crosses
    stepper.flush()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)
    assert all("linear" in mode.names and "add_" not in mode.names for mode in modes)


def test_state_is_made_on_the_device_on_which_a_script_makes_tensors(make_stepper: Make) -> None:
    made: List[torch.device] = []

    class Making(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # noqa: ANN401
            made.append(torch.empty(1).device)
            return super().step(closure)

    model = nn.Linear(3, 3)
    stepper = make_stepper(model, Making(model.parameters(), 0.1))
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
    made.clear()
    with torch.device("meta"):
        model(torch.ones(1, 3, device="cpu"))
        assert torch.empty(1).is_meta
    assert [device.type for device in made] == ["meta"]
