"""The self-check finds what cannot be stepped parameter by parameter, and changes nothing."""

import copy
import inspect
import warnings
from typing import Any, Callable, Dict, List, Optional

import pytest
import torch
from inline_snapshot import snapshot
from torch.optim import optimizer as of_optimizers

from bytescheduler.torch._crossing import self_check
from bytescheduler.torch._crossing.self_check import why_not_separable
from bytescheduler.torch._crossing.shadow import Shadow, needs_closure, plain_step
from bytescheduler.torch._optimizer.stepper import Stepper

SEPARABLE: Dict[str, Dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"fused": True},
    "AdamW": {"foreach": True},
    "RMSprop": {"momentum": 0.5},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "ASGD": {},
    "Rprop": {},
    "Adafactor": {},
}


def weights() -> "list[torch.nn.Parameter]":
    torch.manual_seed(1)
    shapes = [(3, 4), (4,), (2, 3, 5), (300, 400)]
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def groups() -> "list[Dict[str, Any]]":
    first, second, *rest = weights()
    return [{"params": [first, second]}, {"params": rest, "lr": 0.0}]


@pytest.mark.parametrize("name", SEPARABLE)
def test_optimizers_of_pytorch_are_separable(name: str) -> None:
    kind = getattr(torch.optim, name)
    assert why_not_separable(kind(groups(), **SEPARABLE[name])) is None


VARIANTS = ("fused", "foreach", "amsgrad", "maximize", "centered")
CROSSING = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam")
)


@pytest.mark.parametrize("name", CROSSING)
def test_each_form_of_an_optimizer_of_pytorch_crosses(name: str) -> None:
    kind = getattr(torch.optim, name)
    known = inspect.signature(kind).parameters
    forms: List[Dict[str, Any]] = [{variant: True} for variant in VARIANTS if variant in known]
    forms += [{}, {"foreach": False}] if "foreach" in known else [{}]
    forms += [{"momentum": 0.9, "nesterov": True}] if name == "SGD" else []
    for dtype in (torch.float32, torch.bfloat16):
        for form in forms:
            params = [torch.nn.Parameter(p.detach().to(dtype)) for p in weights()]
            planes = [p for p in params if p.dim() == 2]
            optimizer = kind(planes if name == "Muon" else params, **form)
            assert why_not_separable(optimizer) is None, (form, dtype)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_learning_rate_in_a_tensor_crosses(name: str) -> None:
    optimizer = getattr(torch.optim, name)(weights(), lr=torch.tensor(0.1))
    assert why_not_separable(optimizer) is None


class OtherParameter(torch.nn.Parameter):
    """A weight for whose group PyTorch does not choose `foreach`, as for a weight of the CPU."""


def test_a_group_of_several_kinds_is_rounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_optimizers, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])
    first, *rest = weights()
    kinds = [OtherParameter(first.detach()), *rest]
    assert why_not_separable(torch.optim.NAdam(rest)) is None
    assert why_not_separable(torch.optim.NAdam(kinds)) == self_check._MIXED
    assert why_not_separable(torch.optim.NAdam(kinds, foreach=False)) is None
    apart = [{"params": kinds[:1]}, {"params": rest}]
    assert why_not_separable(torch.optim.NAdam(apart)) is None


def test_a_default_device_changes_nothing() -> None:
    optimizer = torch.optim.SGD(groups(), lr=0.1, momentum=0.9)
    with torch.device("meta"):
        assert why_not_separable(optimizer) is None


class GlobalNormSGD(torch.optim.SGD):
    """Divides by the norm of all gradients."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norm = sum(float(grad.norm()) for grad in grads if grad is not None)
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"] / norm)


class Counting(torch.optim.SGD):
    """Counts its steps in each group."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        super().step()
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


class CountingItself(torch.optim.SGD):
    """Counts its steps in an attribute."""

    steps = 0

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        super().step()
        self.steps += 1


class Noisy(torch.optim.SGD):
    """Adds noise."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(torch.randn_like(p), alpha=0.01)


class Failing(torch.optim.SGD):
    """Cannot step at all."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        raise ZeroDivisionError("by nothing")


class Judging(torch.optim.SGD):
    """Does nothing unless it accepts all gradients."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        params = [p for group in self.param_groups for p in group["params"]]
        if self.accepts([p.grad for p in params if p.grad is not None], len(params)):
            super().step()

    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        return all(bool(torch.isfinite(grad).all()) for grad in grads)


class Clipping(Judging):
    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        norm = float(torch.stack([grad.norm() for grad in grads]).norm())
        for grad in grads:
            grad.mul_(min(1.0, 1e4 / norm))
        return True


class RefusingTiny(Judging):
    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        return float(sum(grad.norm() for grad in grads)) > 0.01


class RefusingZero(Judging):
    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        return all(bool(grad.any()) for grad in grads)


class RefusingNan(Judging):
    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        return not any(bool(grad.isnan().any()) for grad in grads)


class RefusingInf(Judging):
    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        return not any(bool(grad.isinf().any()) for grad in grads)


class CountingSteps(torch.optim.SGD):
    """Takes the steps of its first parameter for those of all."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:
        for group in self.param_groups:
            first = self.state[group["params"][0]]
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-group["lr"] / (1 + first.get("steps", 0)))


class Raising(Judging):
    """Raises where a gradient is not finite."""

    def accepts(self, grads: List[torch.Tensor], params: int) -> bool:
        if not super().accepts(grads, params):
            warnings.warn("a gradient is not finite", stacklevel=1)
            raise ValueError("a gradient is not finite")
        return True


class Wrapping(torch.optim.Optimizer):
    """Lets another optimizer step, and decays weights itself."""

    def __init__(self, params: Any, lr: float) -> None:  # noqa: ANN401
        super().__init__(params, {"lr": lr})
        self.base = torch.optim.SGD(self.param_groups, lr=lr)
        self.param_groups = self.base.param_groups

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.data.mul_(1 - 0.1 * group["lr"])
        self.base.step()


class Dropping(torch.optim.SGD):
    """Its step leaves no gradient."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:  # type: ignore[override]
        super().step()
        self.zero_grad()


class Centering(torch.optim.SGD):
    """Its step puts other gradients in the place of those that backward made."""

    def step(self, closure: Optional[Callable[[], float]] = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = p.grad - p.grad.mean()
        super().step()


@pytest.mark.parametrize("kind", [Dropping, Centering])
def test_an_optimizer_leaves_the_gradients_that_it_leaves_in_the_plain_run(
    make_stepper: Callable[..., Stepper], kind: type
) -> None:
    model = torch.nn.Linear(3, 3)
    alone = copy.deepcopy(model)
    stepper, plain = (
        make_stepper(model, kind(model.parameters(), 0.1)),
        kind(alone.parameters(), 0.1),
    )
    for _ in range(3):
        for module in (model, alone):
            module(torch.ones(1, 3)).square().sum().backward()
        stepper.step(None)
        plain.step()
        for one, other in zip(model.parameters(), alone.parameters()):
            assert (one.grad is None) is (other.grad is None)
            assert one.grad is None or torch.equal(one.grad, other.grad)
        stepper.zero_grad(True)
        plain.zero_grad()
    assert not stepper.crosses


def test_an_optimizer_that_raises_alike_is_separable() -> None:
    params = [torch.nn.Parameter(torch.randn(3)) for _ in range(3)]
    assert why_not_separable(Raising(params, lr=0.1)) is None


@pytest.mark.parametrize("rate", [0, 0.0])
def test_an_optimizer_that_rests_at_first_is_separable(rate: float) -> None:
    assert why_not_separable(torch.optim.SGD(weights(), lr=rate)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", [Judging, Clipping])
def test_a_dependence_is_found_in_each_dtype(kind: type, dtype: torch.dtype) -> None:
    params = [torch.nn.Parameter(torch.randn(30, 30).to(dtype)) for _ in range(2)]
    each_in_a_group = [{"params": [p]} for p in params]
    assert why_not_separable(kind(each_in_a_group, lr=0.1)) is not None


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Judging, "depends on others"),
        (Clipping, "depends on others"),
        (RefusingTiny, "depends on others"),
        (RefusingZero, "depends on others"),
        (RefusingNan, "depends on others"),
        (RefusingInf, "depends on others"),
        (CountingSteps, "depends on others"),
        (Wrapping, "gradients do not change the weights of its copies"),
        (GlobalNormSGD, "depends on others"),
        (Counting, "change the numbers of its groups"),
        (CountingItself, "numbers of its own"),
        (Noisy, "random numbers"),
        (Dropping, "puts other gradients in p.grad, or drops them"),
        (Centering, "puts other gradients in p.grad, or drops them"),
        (Failing, "ZeroDivisionError: by nothing"),
    ],
)
def test_an_inseparable_optimizer_is_found(kind: type, why: str) -> None:
    optimizer = kind(groups(), lr=0.0)  # as a warm-up begins
    assert why in (why_not_separable(optimizer) or "")


def test_an_inseparable_optimizer_keeps_the_barrier_and_says_so_once(
    make_stepper: Callable[..., Stepper], capfd: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Linear(2, 2)
    stepper = make_stepper(model, GlobalNormSGD(model.parameters(), 0.1))
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        stepper.step(None)
    assert not stepper.crosses
    said = "GlobalNormSGD cannot cross the barrier: an update of one parameter depends on others"
    assert capfd.readouterr().err.count(said) == 1


def test_an_optimizer_that_crosses_says_so_once(
    make_stepper: Callable[..., Stepper],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "bytescheduler: SGD crosses the barrier: forward begins while sums are under way\n"
    for level, lines in (("info", [line]), ("warning", [])):
        monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", level)
        model = torch.nn.Linear(2, 2)
        stepper = make_stepper(model, torch.optim.SGD(model.parameters(), 0.1))
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            stepper.step(None)
        assert stepper.crosses
        stepper.close()
        assert capfd.readouterr().err == "".join(lines)


def test_numbers_that_another_thread_draws_are_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def step(optimizer: Any) -> None:  # noqa: ANN401
        if not drawn:
            drawn.append(torch.rand(1))
        plain(optimizer)

    optimizer = torch.optim.SGD(groups(), lr=0.1)
    plain = self_check.plain_step(type(optimizer))
    monkeypatch.setattr(self_check, "plain_step", lambda _: step)
    assert why_not_separable(optimizer) is None
    assert drawn


def test_the_check_changes_nothing() -> None:
    optimizer = torch.optim.Adam(groups(), lr=0.1)
    before = [p.detach().clone() for g in optimizer.param_groups for p in g["params"]]
    random = torch.get_rng_state()
    assert why_not_separable(optimizer) is None
    after = [p for g in optimizer.param_groups for p in g["params"]]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    assert all(p.grad is None for p in after)
    assert not optimizer.state
    assert torch.equal(random, torch.get_rng_state())


def test_a_step_that_needs_a_closure_is_known() -> None:
    class Searching(torch.optim.SGD):
        def step(self, closure: Callable[[], float]) -> None:  # type: ignore[override]
            closure()

    assert needs_closure(torch.optim.LBFGS(weights()))
    assert needs_closure(Searching(weights(), lr=0.1))
    assert not needs_closure(torch.optim.SGD(weights(), lr=0.1))
    assert why_not_separable(Searching(weights(), lr=0.1)) == snapshot(
        "its step evaluates the loss itself"
    )


def test_a_shadow_steps_only_the_given_parameters() -> None:
    params = weights()
    optimizer = torch.optim.Adam(params, lr=0.1)
    listed = optimizer.param_groups[0]["params"]
    before = [p.detach().clone() for p in params]
    shadow = Shadow(optimizer)
    shadow.snapshot()
    optimizer.param_groups[0]["lr"] = 100.0
    params[1].grad = torch.ones_like(params[1])
    shadow.step({0: [params[1]]})
    changed = [not torch.equal(a, b) for a, b in zip(before, params)]
    assert changed == [False, True, False, False]
    assert float((before[1] - params[1].detach()).abs().max()) < 1
    assert list(optimizer.state) == [params[1]]
    assert optimizer.param_groups[0]["params"] is listed
    assert plain_step(torch.optim.Adam) is not torch.optim.Adam.step  # no profiler around it
