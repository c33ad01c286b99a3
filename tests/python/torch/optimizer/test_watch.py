"""A wrapped optimizer refuses a step of its own, and tells its newest state."""

import copy
import gc
import pickle
import weakref
from typing import Any, Callable, List

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._optimizer.methods import with_means
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
REFUSED = (
    "step.. of the wrapped optimizer was called directly; call step.. of the optimizer that "
    "DistributedOptimizer returned, and keep that"
)


def backward(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(1, 2)).sum()
    loss.backward()
    return loss


def sgd(model: nn.Module, **options: Any) -> Any:  # noqa: ANN401
    return torch.optim.SGD(model.parameters(), 0.5, momentum=0.9, **options)


@pytest.mark.parametrize("crossing", [True, False])
def test_a_direct_step_is_refused(make_stepper: Make, crossing: bool) -> None:
    model = nn.Linear(2, 2)
    inner = sgd(model)
    stepper = make_stepper(model, inner, crossing=crossing)
    for _ in range(2):
        backward(model)
        stepper.step(None)
        stepper.zero_grad(True)
    backward(model)
    with pytest.raises(UsageError, match=REFUSED):
        inner.step()
    stepper.step(None)  # the wrapper goes on
    stepper.flush()


class Twice(torch.optim.SGD):
    """Its step is that of its base, and it has a method that steps."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        return super().step(closure)

    def second_step(self) -> None:
        self.step()


@pytest.mark.parametrize("crossing", [True, False])
def test_all_steps_of_the_wrapper_are_allowed(make_stepper: Make, crossing: bool) -> None:
    model = nn.Linear(2, 2)
    inner = Twice(model.parameters(), 0.5)
    seen: List[str] = []
    inner.register_step_pre_hook(lambda *_: seen.append("before"))
    inner.register_step_post_hook(lambda *_: seen.append("after"))
    torch.optim.lr_scheduler.StepLR(inner, 1)  # wraps step()
    stepper = make_stepper(model, inner, crossing=crossing)
    for _ in range(2):
        stepper.step(lambda: backward(model))
        stepper.zero_grad(True)
    assert {"before", "after"} <= set(seen)
    backward(model)
    with_means(inner.second_step, stepper)()
    with pytest.raises(UsageError, match=REFUSED):
        inner.second_step()


def test_a_line_search_is_allowed(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=2)
    stepper = make_stepper(model, inner)

    def closure() -> torch.Tensor:
        stepper.zero_grad(True)
        return backward(model)

    stepper.step(closure)
    with pytest.raises(TypeError):  # its own error
        stepper.step(None)
    with pytest.raises(UsageError, match=REFUSED):
        inner.step(closure)


def test_a_step_that_failed_allows_no_other(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = sgd(model)
    handle = inner.register_step_pre_hook(lambda *_: 1 / 0)
    stepper = make_stepper(model, inner, crossing=False)
    backward(model)
    with pytest.raises(ZeroDivisionError):
        stepper.step(None)
    handle.remove()
    with pytest.raises(UsageError, match=REFUSED):
        inner.step()


def test_a_dropped_wrapper_is_no_licence(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = sgd(model)
    stepper = make_stepper(model, inner)
    alive = weakref.ref(stepper)
    del stepper
    gc.collect()
    assert alive() is None  # its hooks keep it not alive
    backward(model)
    with pytest.raises(UsageError, match=REFUSED):
        inner.step()
    inner.state_dict()
    inner.zero_grad()
    stepper = make_stepper(model, inner)  # may be wrapped anew
    backward(model)
    stepper.step(None)


def test_a_closed_wrapper_leaves_no_hook(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = sgd(model)
    stepper = make_stepper(model, inner)
    backward(model)
    stepper.step(None)
    stepper.close()
    assert not inner._optimizer_step_pre_hooks
    assert not getattr(inner, "_optimizer_state_dict_pre_hooks", {})
    backward(model)
    inner.step()


class Whole(torch.optim.SGD):
    """Its copies have all that it has."""

    def __getstate__(self) -> Any:  # noqa: ANN401
        fields = dict(self.__dict__)
        fields.pop("_zero_grad_profile_name", None)
        return fields


@pytest.mark.parametrize("kind", [torch.optim.SGD, Whole])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_may_step(
    make_stepper: Make, kind: Callable[..., Any], copied: Callable[[Any], Any]
) -> None:
    model = nn.Linear(2, 2)
    inner = kind(model.parameters(), 0.5)
    stepper = make_stepper(model, inner)
    twin = copied(inner)
    for group in twin.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    before = [param.detach().clone() for param in twin.param_groups[0]["params"]]
    twin.step()
    twin.state_dict()
    assert not any(map(torch.equal, before, twin.param_groups[0]["params"]))
    del stepper


def test_alone_nothing_is_refused(job: FakeJob, make_stepper: Make) -> None:
    job.size = 1
    model = nn.Linear(2, 2)
    inner = sgd(model)
    stepper = make_stepper(model, inner)
    assert not inner._optimizer_step_pre_hooks
    backward(model)
    stepper.step(None)
    inner.step()
    stepper.close()


@pytest.mark.skipif(
    not hasattr(torch.optim.Optimizer, "register_state_dict_pre_hook"),
    reason="this PyTorch has no such hook",
)
def test_the_state_of_the_wrapped_optimizer_is_the_newest(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = sgd(model)
    stepper = make_stepper(model, inner)
    seen = []
    for number in range(3):
        stepper.zero_grad(True)
        backward(model)
        stepper.step(None)
        assert stepper.crosses
        state = inner.state_dict()["state"]
        seen.append(state[1]["momentum_buffer"][0].item())
        assert stepper._updates is not None
        assert not stepper._updates.waiting, number
    assert seen == [pytest.approx(value) for value in (1.0, 1.9, 2.71)]
