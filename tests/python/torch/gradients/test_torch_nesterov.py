"""Momentum of gradients on their worker: means of them step as PyTorch's own SGD does."""

from typing import Callable, List, Tuple

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.nesterov import Nesterov
from bytescheduler.torch._gradients.sender import GradientOptions
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._sums.choice import choice_of

MU = 0.9
STEPS = 12
HALF = {"momentum": "nesterov", "mu": 0.5}


def gradients(dtype: torch.dtype = torch.float64) -> List[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randn(7, generator=generator, dtype=torch.float64).to(dtype) for _ in range(STEPS)
    ]


def test_sgd_steps_with_equal_gradients() -> None:
    weight = nn.Parameter(torch.zeros(7, dtype=torch.float64))
    sgd = torch.optim.SGD([weight], 1, momentum=MU, nesterov=True)
    nesterov, expected = Nesterov(MU), torch.zeros(7, dtype=torch.float64)
    for gradient in gradients():
        weight.grad = gradient.clone()
        sgd.step()
        expected -= nesterov.applied(0, gradient)
        assert torch.allclose(weight, expected, rtol=1e-12)


def test_half_precision_has_a_momentum_of_float32() -> None:
    half, wide = Nesterov(MU), Nesterov(MU)
    for gradient in gradients(torch.bfloat16):
        given = half.applied(0, gradient)
        assert given.dtype is torch.bfloat16
        assert torch.equal(given, wide.applied(0, gradient.float()).bfloat16())


def test_each_parameter_has_its_own_and_the_gradient_stays() -> None:
    nesterov, gradient = Nesterov(0.5), torch.ones(2)
    assert nesterov.applied(0, gradient).tolist() == [1.5, 1.5]
    assert nesterov.applied(0, gradient).tolist() == [1.75, 1.75]
    assert nesterov.applied(1, gradient).tolist() == [1.5, 1.5]
    assert gradient.tolist() == [1, 1]


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_is_returned_and_leaves_no_trace(bad: float) -> None:
    nesterov = Nesterov(0.5)
    nesterov.applied(0, torch.ones(2))
    shown = nesterov.applied(0, torch.tensor([bad, 4.0]))
    assert not torch.isfinite(shown[0])
    assert nesterov.applied(0, torch.zeros(2)).tolist() == [0.125, 0.125]


def test_a_step_without_a_gradient_here_counts_as_one_of_zeros() -> None:
    one, other = Nesterov(0.5), Nesterov(0.5)
    assert one.without(0) is None
    for nesterov in (one, other):
        nesterov.applied(0, torch.ones(1))
    sent = one.without(0)
    assert sent is not None
    assert sent.tolist() == other.applied(0, torch.zeros(1)).tolist() == [0.25]
    one.decay(0)
    one.decay(1)  # it has none
    assert one.applied(0, torch.ones(1)).tolist() == other.applied(0, torch.ones(1)).tolist()


def test_momenta_are_taken_back_as_far_as_nothing_has_used_them() -> None:
    nesterov, ones = Nesterov(0.5), torch.ones(1)
    nesterov.applied(0, ones)
    nesterov.take_back()
    assert nesterov.applied(0, ones).tolist() == [1.5]
    nesterov.keep()
    nesterov.take_back()
    assert nesterov.applied(0, ones).tolist() == [1.75]
    nesterov.decay(0)
    nesterov.take_back()
    assert nesterov.applied(0, ones).tolist() == [1.75]


def two_parameters() -> Tuple[Gradients, nn.Parameter, nn.Parameter]:
    at_times, always = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    members = [("at_times", at_times, 0), ("always", always, 0)]
    options = GradientOptions(choice_of(None, HALF))
    return Gradients(FakeJob(), members, options), at_times, always  # type: ignore[arg-type]


def send(made: Gradients, *, at_times: bool) -> None:
    first, second = made.slots
    first.param.grad, second.param.grad = torch.ones(1) if at_times else None, torch.ones(1)
    for slot in made.slots[0 if at_times else 1 :]:
        made.arrived(slot)


def test_a_step_without_a_gradient_on_any_worker_leaves_the_momentum() -> None:
    made, at_times, _ = two_parameters()
    means = []
    for has_gradient in (True, False, True):
        send(made, at_times=has_gradient)
        made.sum_up()
        made.forget_sums()
        means.append(None if at_times.grad is None else at_times.grad.item())
    made.close()
    assert means == [1.5, None, 1.75]


def test_a_discarded_round_without_a_gradient_here_leaves_the_momentum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, at_times, _ = two_parameters()
    monkeypatch.setattr(made.tally, "is_used", lambda _: True)  # the other worker has one
    send(made, at_times=True)
    made.sum_up()
    made.forget_sums()
    send(made, at_times=False)
    made.discard()
    send(made, at_times=True)
    made.sum_up()
    assert at_times.grad is not None
    assert at_times.grad.item() == 1.75
    made.close()


Leave = Callable[[Stepper], None]


def forget_means(stepper: Stepper) -> None:
    stepper.synchronize()
    stepper.zero_grad(True)


LEAVES: List[Leave] = [
    lambda stepper: stepper.zero_grad(True),
    lambda stepper: stepper.zero_grad(False),
    lambda _: None,  # the script drops gradients itself
    lambda stepper: stepper.synchronize(),
    forget_means,
]


@pytest.mark.parametrize("leave", LEAVES, ids=["none", "zeros", "dropped", "means", "no means"])
@pytest.mark.parametrize("crossing", [False, True])
def test_a_gradient_that_no_update_uses_leaves_no_momentum(
    make_stepper: Callable[..., Stepper], crossing: bool, leave: Leave
) -> None:
    model = nn.Linear(1, 1)
    stepper = make_stepper(model, crossing=crossing, choice=choice_of(None, HALF))

    def backward(gradient: float) -> None:
        model.zero_grad()
        model(torch.full((1, 1), gradient)).sum().backward()

    def step(gradient: float) -> float:
        before = model.weight.item()
        backward(gradient)
        stepper.step(None)
        return before - model.weight.item()

    nn.init.zeros_(model.weight)
    for gradient, move in ((0.0, 0.0), (1.0, 0.75), (0.0, 0.125)):
        backward(64.0)
        leave(stepper)
        assert step(gradient) == move
    stepper.close()
