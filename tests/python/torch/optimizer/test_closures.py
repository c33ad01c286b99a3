"""Closures of step(), and other methods of an optimizer's class that step."""

from typing import Any, Callable, List, Optional, Tuple

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._optimizer import distributed
from bytescheduler.torch._optimizer.closures import evaluates_loss
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
Wrap = Callable[..., Any]


class Sharp(torch.optim.Optimizer):
    """Climbs by the gradient, evaluates again, and steps from the old weights."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:  # noqa: ANN401
        super().__init__(params, {"lr": lr})

    def _params(self) -> List[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        for param in self._params():
            self.state[param]["climb"] = param.grad * 0.05
            param.add_(self.state[param]["climb"])
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        for param in self._params():
            param.sub_(self.state[param]["climb"])
            param.add_(param.grad, alpha=-self.param_groups[0]["lr"])
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def climb(self, closure: Callable[[], Any]) -> Any:  # noqa: ANN401
        loss = torch.enable_grad()(closure)()
        self.first_step()
        return loss


class Needs(Sharp):
    """Evaluates twice."""

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # noqa: ANN401
        assert closure is not None, "this optimizer needs a closure"
        closure = torch.enable_grad()(closure)
        loss = closure()
        self.first_step(zero_grad=True)
        closure()
        self.second_step()
        return loss


class After(Sharp):
    """Evaluates once, after a backward of the script's own."""

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> None:  # type: ignore[override]
        assert closure is not None, "this optimizer needs a closure"
        self.first_step(zero_grad=True)
        torch.enable_grad()(closure)()
        self.second_step()


class May(Sharp):
    """Evaluates again if it can."""

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> None:  # type: ignore[override]
        if closure is not None:
            torch.enable_grad()(closure)()
            for param in self._params():
                param.sub_(param.grad, alpha=0.01)
            torch.enable_grad()(closure)()
        for param in self._params():
            param.sub_(param.grad, alpha=0.1)


def pairs(make_stepper: Make, kind: Any, **options: Any) -> List[Tuple[nn.Module, Any]]:  # noqa: ANN401
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        models.append(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)))
    inner, plain = (kind(model.parameters(), 0.1) for model in models)
    return [(models[0], make_stepper(models[0], inner, **options)), (models[1], plain)]


def backward(model: nn.Module, number: int = 0) -> torch.Tensor:
    loss = model(torch.full((2, 3), 0.5 + number)).square().sum()
    loss.backward()
    return loss


def closure_of(model: nn.Module, optimizer: Any, number: int, *, zero: bool = True) -> Any:  # noqa: ANN401
    def closure() -> torch.Tensor:
        if zero:
            optimizer.zero_grad(True)
        return backward(model, number)

    return closure


def check(sides: List[Tuple[nn.Module, Any]]) -> None:
    for one, other in zip(*(model.parameters() for model, _ in sides)):
        assert torch.equal(one, other)


@pytest.mark.parametrize("crossing", ["auto", False])
@pytest.mark.parametrize("kind", [Needs, After, May, torch.optim.LBFGS, torch.optim.SGD])
def test_a_closure_is_evaluated_as_the_optimizer_wants(
    make_stepper: Make, kind: Wrap, crossing: object
) -> None:
    sides = pairs(make_stepper, kind, crossing=crossing)
    for number in range(3):
        losses = []
        for model, optimizer in sides:
            if kind is After:
                optimizer.zero_grad(True)
                backward(model, number + 1)
            losses.append(optimizer.step(closure_of(model, optimizer, number)))
        assert losses[0] == losses[1]
    assert sides[0][1].crosses == (kind is torch.optim.SGD and crossing == "auto")
    check(sides)


@pytest.mark.parametrize("kind", [Needs, May])
def test_an_optimizer_that_must_cross_and_evaluates_again_is_an_error(
    make_stepper: Make, kind: Wrap
) -> None:
    (model, stepper), _ = pairs(make_stepper, kind, crossing=True)
    with pytest.raises(UsageError, match="cannot cross the barrier: its step evaluates the loss"):
        stepper.step(closure_of(model, stepper, 0))


def test_a_step_that_needs_its_closure_says_so_itself(make_stepper: Make) -> None:
    (model, stepper), _ = pairs(make_stepper, Needs)
    backward(model)
    with pytest.raises(AssertionError, match="this optimizer needs a closure"):
        stepper.step(None)


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adam", "RMSprop", "Adagrad", "NAdam", "Rprop"])
def test_an_optimizer_of_pytorch_evaluates_once(name: str) -> None:
    model = nn.Linear(2, 2)
    inner = getattr(torch.optim, name)(model.parameters(), 0.1)
    states = len(inner.state)
    weights = [param.detach().clone() for param in model.parameters()]
    random = torch.get_rng_state()
    assert not evaluates_loss(inner)
    assert torch.equal(random, torch.get_rng_state())
    assert len(inner.state) == states
    assert all(map(torch.equal, model.parameters(), weights))
    assert all(param.grad is None for param in model.parameters())


def test_a_hook_gets_each_mean_of_an_evaluation(make_stepper: Make) -> None:
    def halved(param: torch.Tensor) -> None:
        param.grad.mul_(0.5)

    sides = pairs(make_stepper, Needs, on_gradient=halved)
    for number in range(3):
        for model, optimizer in sides:
            closure = closure_of(model, optimizer, number)

            def plain(closure: Any = closure, model: nn.Module = model) -> Any:  # noqa: ANN401
                loss = closure()
                for param in model.parameters():
                    halved(param)
                return loss

            optimizer.step(closure if isinstance(optimizer, Stepper) else plain)
    check(sides)


# -- other methods -------------------------------------------------------------------------------


class Current:
    """See `Job`."""

    def __init__(self) -> None:
        self.job = FakeJob()

    def get(self) -> FakeJob:
        return self.job

    def flush(self) -> None:
        pass


@pytest.fixture
def wrap(monkeypatch: pytest.MonkeyPatch, job: FakeJob) -> Callable[..., Any]:
    current = Current()
    current.job = job
    monkeypatch.setattr(distributed, "current", lambda: current)

    def wrapped(model: nn.Module, inner: Any, **options: Any) -> Stepper:  # noqa: ANN401
        wrapper: Any = distributed.DistributedOptimizer(inner, model=model, **options)
        return wrapper  # type: ignore[no-any-return]

    return wrapped


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.usefixtures("singly")
def test_a_method_that_steps_gets_means(
    wrap: Wrap, job: FakeJob, by_hand: bool, zero: bool
) -> None:
    sides = pairs(wrap, Needs)

    def gradients(model: nn.Module, number: int) -> None:
        if by_hand:
            loss = model(torch.full((2, 3), 0.5 + number)).square().sum()
            params = list(model.parameters())
            for param, grad in zip(params, torch.autograd.grad(loss, params)):
                param.grad = grad
        else:
            backward(model, number)

    for number in range(3):
        for model, optimizer in sides:
            optimizer.zero_grad()
            gradients(model, number)
            optimizer.first_step(zero_grad=zero)
            if not zero:
                optimizer.zero_grad()
            gradients(model, number + 1)
            optimizer.second_step(zero_grad=zero)
    check(sides)
    assert len(job.session.rounds) == 3 * 2 * 5  # four gradients and a tally


@pytest.mark.usefixtures("singly")
def test_a_closure_of_another_method_leaves_means(wrap: Wrap, job: FakeJob) -> None:
    sides = pairs(wrap, Needs)
    for model, optimizer in sides:
        optimizer.climb(closure_of(model, optimizer, 0))
        optimizer.climb(closure=closure_of(model, optimizer, 1))
    check(sides)
    assert len(job.session.rounds) == 2 * 5


@pytest.mark.usefixtures("singly")
def test_a_method_that_only_reads_leaves_the_step_to_come(wrap: Wrap, job: FakeJob) -> None:
    class Rated(torch.optim.SGD):
        def rate(self) -> float:
            return float(self.param_groups[0]["lr"])

    sides = pairs(wrap, Rated)
    for number in range(3):
        for model, optimizer in sides:
            optimizer.zero_grad()
            backward(model, number)
            assert optimizer.rate() == 0.1
            optimizer.step()
            assert optimizer.rate() == 0.1
    check(sides)
    assert len(job.session.rounds) == 3 * 5
