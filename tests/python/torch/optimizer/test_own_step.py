"""An optimizer's own code is told from hooks and closures around it."""

from typing import Any, Callable, List

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.torch._optimizer.own_step import OwnStep
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
LR = "lr of group 0 of the optimizer"
D = "d of group 0 of the optimizer"


class Telling(torch.optim.SGD):
    """Tells its own code, around that of its base."""

    def __init__(self, events: List[str], lr: float = 0.5) -> None:
        super().__init__([nn.Parameter(torch.ones(2))], lr)
        self.events = events

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        self.events.append("own")
        result = super().step(closure)
        self.events.append("own")
        return result


def test_hooks_are_outside_also_of_a_base() -> None:
    torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.5)  # the base calls hooks from now on
    events: List[str] = []
    inner = Telling(events)
    inner.register_step_pre_hook(lambda *_: events.append("hook"))
    inner.register_step_post_hook(lambda *_: events.append("hook"))
    own_step = OwnStep(inner, lambda: events.append("("), lambda: events.append(")"))

    def closure() -> None:
        with own_step.paused():
            events.append("closure")

    for _ in range(2):
        events.clear()
        with own_step.watched():
            inner.register_step_post_hook(lambda *_: None).remove()
            inner.step(closure)
        text = " ".join(events)
        assert text == "hook ( own ) hook ( ) closure ( ) hook ( own ) hook"
        hooks = [*inner._optimizer_step_pre_hooks, *inner._optimizer_step_post_hooks]
        assert len(hooks) == 2


def test_a_step_that_fails_leaves_no_hook() -> None:
    inner = Telling([])
    taken: List[str] = []
    own_step = OwnStep(inner, lambda: taken.append("("), lambda: taken.append(")"))

    def closure() -> None:
        raise KeyError

    with pytest.raises(KeyError), own_step.watched():
        inner.step(closure)
    assert not inner._optimizer_step_pre_hooks
    assert not inner._optimizer_step_post_hooks
    taken.clear()
    with own_step.paused():
        pass
    assert taken == []


class Plain(torch.optim.Optimizer):
    """It calls no hooks, as it leaves out the start of its base."""

    def __init__(self, params: List[nn.Parameter]) -> None:
        self.param_groups = [{"params": params}]

    def step(self, closure: Any = None) -> None:  # noqa: ANN401
        """Do nothing."""


def test_a_step_without_hooks_is_watched_whole() -> None:
    events: List[str] = []
    inner = Plain([nn.Parameter(torch.ones(1))])
    with OwnStep(inner, lambda: events.append("("), lambda: events.append(")")).watched():
        inner.step()
    assert events == ["(", ")"]


class Adapting(torch.optim.SGD):
    """Its steps change a number of its own, and it evaluates its closure twice."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        self.param_groups[0]["d"] = self.param_groups[0].get("d", 0) + 1
        if closure is not None:
            torch.enable_grad()(closure)()
        return super().step(closure)


@pytest.mark.parametrize("where", ["before", "after", "closure"])
def test_a_scheduler_in_a_step_takes_no_number_out(
    job: FakeJob, make_stepper: Make, where: str
) -> None:
    model = nn.Linear(2, 2)
    inner = Adapting(model.parameters(), 0.5)
    stepper = make_stepper(model, inner, crossing=False)

    def schedule(*_: object) -> None:
        inner.param_groups[0]["lr"] *= 0.5

    if where == "before":
        inner.register_step_pre_hook(schedule)
    if where == "after":
        inner.register_step_post_hook(schedule)

    def closure() -> torch.Tensor:
        stepper.zero_grad(True)
        loss: torch.Tensor = model(torch.ones(1, 2)).sum()
        loss.backward()
        if where == "closure":
            schedule()
        return loss

    for _ in range(3):
        closure()
        stepper.step(closure if where == "closure" else None)
    stepper._optimizer_facts.digest()
    labels = stepper._optimizer_facts.numbers()
    assert LR in labels
    assert D not in labels
    assert inner.param_groups[0]["lr"] < 0.5
