"""Momentum of gradients on their worker: means of them step as PyTorch's own SGD does."""

from typing import List

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.nesterov import Nesterov
from bytescheduler.torch._gradients.sender import GradientOptions
from bytescheduler.torch._sums.choice import choice_of

MU = 0.9
STEPS = 12


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


def test_a_step_without_a_gradient_on_any_worker_leaves_the_momentum() -> None:
    job = FakeJob()
    at_times, always = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    choice = choice_of(None, {"momentum": "nesterov", "mu": 0.5})
    members = [("at_times", at_times, 0), ("always", always, 0)]
    made = Gradients(job, members, GradientOptions(choice))  # type: ignore[arg-type]
    means = []
    for has_gradient in (True, False, True):
        at_times.grad, always.grad = torch.ones(1) if has_gradient else None, torch.ones(1)
        for slot in made.slots[0 if has_gradient else 1 :]:
            made.arrived(slot)
        made.sum_up()
        made.forget_sums()
        means.append(None if at_times.grad is None else at_times.grad.item())
    made.close()
    assert means == [1.5, None, 1.75]
