"""Guards: which module waits for which weight, and what copies of a module have."""

import copy
import io
import pickle
from typing import Any, Callable, Dict

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]


class Parent(nn.Module):
    """Uses a weight of a child that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(3, 3)
        self.other = nn.Linear(3, 3)
        self.branch = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(x, self.child.weight, self.child.bias)
        if self.branch:
            x = x @ self.other.weight
        return self.other(x)


def step(stepper: Stepper, model: nn.Module) -> None:
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)


def test_a_parent_that_uses_a_childs_weight_waits_for_it(make_stepper: Make) -> None:
    model = Parent()
    stepper = make_stepper(model)
    for _ in range(5):
        step(stepper, model)


def test_a_use_that_begins_later_makes_the_update(make_stepper: Make) -> None:
    model, alone = Parent(), Parent()
    alone.load_state_dict(model.state_dict())
    stepper, plain = make_stepper(model), torch.optim.SGD(alone.parameters(), 0.5)
    for number in range(4):
        model.branch = alone.branch = number > 1
        step(stepper, model)
        alone(torch.ones(1, 3)).sum().backward()
        plain.step()
        plain.zero_grad()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)
    assert stepper.crosses


def test_copies_wait_for_nothing(make_stepper: Make, job: FakeJob) -> None:
    model = Parent()
    stepper = make_stepper(model)
    step(stepper, model)
    twins = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
    step(stepper, model)
    job.session.held = ["child.weight", "other.weight"]
    for twin in twins:
        twin(torch.ones(1, 3)).sum().backward()
        twin.state_dict()


def test_a_closed_optimizer_leaves_no_hook(make_stepper: Make) -> None:
    model = Parent()
    stepper = make_stepper(model)
    step(stepper, model)
    stepper.close()
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
        assert not module._state_dict_pre_hooks
    assert not model.child.weight._post_accumulate_grad_hooks


class Evaluating(Parent):
    """Uses another module's weight in evaluation only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            return self.other(self.child(x))
        return nn.functional.linear(x, self.other.weight) + self.child(x)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("part", ["the whole", "a part"])
def test_without_gradients_every_weight_is_the_newest(
    make_stepper: Make, mode: Callable[[], Any], part: str
) -> None:
    model = Evaluating()
    whole = nn.Sequential(model)
    stepper = make_stepper(whole)
    called = whole if part == "the whole" else model
    for _ in range(2):
        step(stepper, whole)
        model.train(False)
        with mode():
            early = called(torch.ones(1, 3))
            stepper.synchronize()
            assert torch.equal(early, called(torch.ones(1, 3)))
        model.train(True)


def test_an_evaluation_takes_the_ways_that_it_takes_without_us(make_stepper: Make) -> None:
    model = nn.MultiheadAttention(64, 4, batch_first=True).train(False)
    plain = copy.deepcopy(model)
    stepper = make_stepper(model)
    x = torch.randn(4, 16, 64)
    with torch.no_grad():
        want = plain(x, x, x, need_weights=False)[0]
        assert torch.equal(model(x, x, x, need_weights=False)[0], want)
    assert stepper.crosses  # kept, as a guard without a stepper does nothing


def copied_by_torch(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


class Own(nn.Linear):
    """Pickles itself in its own way."""

    own = False

    def __getstate__(self) -> Dict[str, Any]:
        return {"own": True, "attributes": self.__dict__.copy()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state["attributes"], own=state["own"])


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        copied_by_torch,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: torch.optim.swa_utils.AveragedModel(model).module,
    ],
)
def test_copies_have_the_newest_weights(
    make_stepper: Make, copied: Callable[[nn.Module], nn.Module]
) -> None:
    model = nn.Sequential(Parent(), Own(3, 3))
    stepper = make_stepper(model)
    for part in (model, model[0]):
        step(stepper, model)
        twin = copied(part)
        for one, other in zip(twin.parameters(), part.parameters()):
            assert torch.equal(one, other)
        stepper.synchronize()
        for one, other in zip(twin.parameters(), part.parameters()):
            assert torch.equal(one, other)
        assert "__getstate__" not in vars(twin)
        copied(twin)
    assert copied(model)[1].own
    stepper.close()
    assert "__getstate__" not in vars(model)
