"""Gradients are what lies in `p.grad`: after a step, with zeros, with None, and by hand."""

import copy
import gc
import re
import threading
import weakref
from typing import Any, Callable, Dict, List, Tuple, Type

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
Zero = Callable[["Model", Any], object]
WAYS = [(True, True), (True, False), (False, True)]  # crossing, and whether a model is given


class Model(nn.Module):
    """Leaves out a layer in every other pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.sometimes, self.last = (nn.Linear(3, 3) for _ in range(3))
        self.takes = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        if self.takes:
            x = self.sometimes(x).tanh()
        return self.last(x)


class Pair:
    """A model in a job, and an equal one with the plain optimizer."""

    def __init__(self, make_stepper: Make, way: Tuple[bool, bool], **options: Any) -> None:  # noqa: ANN401
        crossing, has_model = way
        self.models = Model(), Model()
        inner, self.plain = (
            torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
            for model in self.models
        )
        options.setdefault("crossing", "auto" if crossing else False)
        if has_model:
            self.stepper = make_stepper(self.models[0], inner, **options)
        else:
            named = list(self.models[0].named_parameters())
            self.stepper = make_stepper(None, inner, named_parameters=named, **options)
        self.sides: List[Tuple[Model, Any]] = [
            (self.models[0], self.stepper),
            (self.models[1], self.plain),
        ]

    def backward(self, number: int) -> None:
        for model, _ in self.sides:
            model(torch.full((2, 3), 0.5 + number)).square().sum().backward()

    def step(self) -> None:
        self.stepper.step(None)
        self.plain.step()

    def each(self, call: Zero) -> List[Any]:
        return [call(model, optimizer) for model, optimizer in self.sides]

    def check(self) -> None:
        for one, other in zip(*(model.parameters() for model in self.models)):
            assert (one.grad is None) == (other.grad is None)
            assert one.grad is None or torch.equal(one.grad, other.grad)
            assert torch.equal(one, other)
        for one, other in zip(*(model.parameters() for model in self.models)):
            ours, plain = self.stepper._inner.state[one], self.plain.state[other]
            assert ours.keys() == plain.keys()
            assert all(torch.equal(ours[name], plain[name]) for name in ours if name != "step")


@pytest.fixture(params=WAYS, ids=["crossing", "no model", "barrier"])
def pair(request: pytest.FixtureRequest, make_stepper: Make) -> Pair:
    return Pair(make_stepper, request.param)


def to_none(model: Model, optimizer: Any) -> None:  # noqa: ANN401
    for param in model.parameters():
        param.grad = None


def by_zero(model: Model, optimizer: Any) -> None:  # noqa: ANN401
    for param in model.parameters():
        if param.grad is not None:
            param.grad.detach_()
            param.grad.zero_()


def by_foreach(model: Model, optimizer: Any) -> None:  # noqa: ANN401
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    if grads:
        torch._foreach_zero_(grads)


ZEROES: Dict[str, Zero] = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "module": lambda model, optimizer: model.zero_grad(set_to_none=False),
    "zero_": by_zero,
    "foreach": by_foreach,
    "data": lambda model, optimizer: [
        p.grad.data.zero_() for p in model.parameters() if p.grad is not None
    ],
}
NONES: Dict[str, Zero] = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(set_to_none=True),
    "module": lambda model, optimizer: model.zero_grad(),
    "None": to_none,
    "never": lambda model, optimizer: None,
}


# -- zeros and None after a step -----------------------------------------------------------------


@pytest.mark.parametrize("name", [*ZEROES, *(f"to none by {name}" for name in NONES)])
def test_gradients_that_are_reset_are_as_in_the_plain_run(pair: Pair, name: str) -> None:
    reset = ZEROES[name] if name in ZEROES else NONES[name.split()[-1]]
    for number in range(6):
        for model in pair.models:
            model.takes = number % 3 == 0
        pair.each(reset)
        pair.backward(number)
        pair.step()
    pair.check()


@pytest.mark.parametrize("name", ["optimizer", "module", "zero_", "foreach"])
def test_zeros_wait_for_no_sum(job: FakeJob, make_stepper: Make, name: str) -> None:
    pair = Pair(make_stepper, (True, True))
    pair.backward(0)
    pair.step()
    job.session.held = list(job.session.names.values())
    ZEROES[name](*pair.sides[0])
    assert all(not p.grad.any() for p in pair.models[0].parameters())
    to_none(*pair.sides[0])
    assert all(p.grad is None for p in pair.models[0].parameters())
    assert pair.stepper._updates is not None
    assert pair.stepper._updates.waiting == 6


# -- a gradient that is read after a step --------------------------------------------------------

READS: Dict[str, Callable[[torch.Tensor], Any]] = {
    "norm": lambda grad: grad.norm(),
    "item": lambda grad: grad.flatten()[0].item(),
    "numpy": lambda grad: grad.numpy().tolist(),
    "clone": lambda grad: grad.clone(),
    "data": lambda grad: grad.data,
    "copy": copy.deepcopy,
    "norms": lambda grad: torch._foreach_norm([grad])[0],
    "text": str,
    "mul_": lambda grad: grad.mul_(2),
    "[0]": lambda grad: grad[0],
}


def read(model: Model, name: str) -> List[Any]:
    return [READS[name](param.grad) for param in model.parameters()]


@pytest.mark.parametrize("name", READS)
def test_a_gradient_after_a_step_is_the_mean(pair: Pair, name: str) -> None:
    for number in range(3):
        pair.each(NONES["None"])
        pair.backward(number)
        pair.step()
        ours, plain = (read(model, name) for model in pair.models)
        for one, other in zip(ours, plain):
            same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
            assert same
    pair.check()


def test_a_gradient_that_a_script_keeps_stays_the_mean(pair: Pair) -> None:
    kept: List[List[torch.Tensor]] = [[], []]
    for number in range(4):
        for grads, model in zip(kept, pair.models):
            grads += [p.grad for p in model.parameters() if p.grad is not None]
        pair.each(NONES["None" if number % 2 else "optimizer"])
        pair.backward(number)
        pair.step()
    pair.check()
    for one, other in zip(*kept):
        assert torch.equal(one, other)
    assert {type(grad) for grad in kept[0]} == {torch.Tensor}


def test_its_shape_waits_for_nothing(job: FakeJob, make_stepper: Make) -> None:
    pair = Pair(make_stepper, (True, True))
    pair.backward(0)
    pair.step()
    job.session.held = list(job.session.names.values())
    grad = pair.models[0].first.weight.grad
    assert (grad.shape, grad.dtype, grad.device.type) == ((3, 3), torch.float32, "cpu")
    assert not grad.requires_grad
    assert grad.grad_fn is None
    with pytest.raises(Exception, match="held back"):
        grad.sum()


def test_two_threads_read_a_gradient(make_stepper: Make) -> None:
    pair = Pair(make_stepper, (True, True))
    pair.backward(0)
    pair.step()
    grad = pair.models[0].first.weight.grad
    norms: List[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: norms.append(grad.norm())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(norm, pair.models[1].first.weight.grad.norm()) for norm in norms)


def test_a_gradient_that_waits_keeps_no_optimizer_alive(make_stepper: Make) -> None:
    model = Model()
    stepper = make_stepper(model, crossing=True)
    for number in range(3):
        stepper.zero_grad(True)
        model(torch.full((2, 3), 0.1 * number)).square().sum().backward()
        stepper.step(None)
    grad = model.first.weight.grad
    assert type(grad) is not torch.Tensor
    assert stepper._updates is not None
    stepper.gradients._job.unflushed.clear()  # it has what waits until the end of the job
    alive = weakref.ref(stepper)
    del stepper, model
    gc.collect()
    assert alive() is None
    with pytest.raises(UsageError, match="used after its optimizer is gone"):
        grad.sum()


class Keeper(torch.optim.SGD):
    """Keeps each first gradient in its state, as one that averages them may."""

    keeps: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    kept = self.state[param].setdefault("kept", type(self).keeps(param.grad))
                    param.data.sub_(kept)
        return super().step()


class KeeperItself(Keeper):
    """Keeps the tensors in `p.grad` themselves."""

    keeps = staticmethod(lambda grad: grad)


@pytest.mark.parametrize("kind", [Keeper, KeeperItself])
@pytest.mark.parametrize("name", NONES)
def test_an_optimizer_may_keep_gradients(make_stepper: Make, name: str, kind: Type[Keeper]) -> None:
    models = Model(), Model()
    inner, plain = (kind(model.parameters(), 0.1) for model in models)
    stepper = make_stepper(models[0], inner, crossing=True)
    for number in range(4):
        for model, optimizer in ((models[0], stepper), (models[1], plain)):
            NONES[name](model, optimizer)
            model(torch.full((2, 3), 0.1 * number)).square().sum().backward()
            optimizer.step(None)
    for one, other in zip(*(model.parameters() for model in models)):
        assert torch.equal(one, other)


def test_gradients_that_are_parts_of_the_scripts_own_tensor(pair: Pair) -> None:
    flats = []
    for model, _ in pair.sides:
        params = list(model.parameters())
        flat, at = torch.zeros(sum(p.numel() for p in params)), 0
        for param in params:
            param.grad = flat[at : at + param.numel()].view_as(param)
            at += param.numel()
        flats.append(flat)
    for number in range(4):
        for flat in flats:
            flat.zero_()
        pair.backward(number)
        pair.step()
        assert torch.equal(*flats)
    pair.check()


# -- a gradient that only the other worker has ---------------------------------------------------


def other_has(job: FakeJob, stepper: Stepper, mean: float) -> None:
    """Let the other worker have gradients of the layer that this one leaves out."""
    tally: Any = stepper.gradients.tally
    tally._pending.wait()
    for slot in stepper.gradients.slots:
        if not slot.had_gradient:
            tally._recv[5 + slot.index] += 1
            assert slot.pending is not None
            slot.pending.wait()  # type: ignore[attr-defined]
            assert slot.recv is not None
            slot.recv.fill_(mean)


@pytest.mark.parametrize("way", [*ZEROES, *NONES, "read"])
def test_a_gradient_of_another_worker_is_there_too(
    job: FakeJob, make_stepper: Make, way: str
) -> None:
    pair = Pair(make_stepper, (True, True))
    ours, plain = pair.models
    for number in range(4):
        for model in pair.models:
            model.takes = False
        pair.backward(number)
        pair.stepper.step(None)
        if number == 1:
            for param in plain.sometimes.parameters():
                param.grad = torch.full_like(param, 0.25)
            other_has(job, pair.stepper, 0.25)
        pair.plain.step()
        if way == "read":
            for one, other in zip(ours.parameters(), plain.parameters()):
                assert (one.grad is None) == (other.grad is None)
                assert one.grad is None or torch.equal(one.grad, other.grad)
            pair.each(NONES["None"])
        else:
            pair.each(ZEROES.get(way) or NONES[way])
    pair.check()


# -- dropped between backward and step -----------------------------------------------------------


@pytest.mark.parametrize("name", ["optimizer", "module", "None"])
@pytest.mark.parametrize("then", ["backward", "step", "state", "synchronize"])
def test_gradients_that_are_dropped_before_a_step(pair: Pair, name: str, then: str) -> None:
    for number in range(4):
        pair.backward(number)
        pair.step()
        pair.each(NONES["None"])
        for model in pair.models:
            model.takes = number % 2 == 0
        pair.backward(number + 1)
        pair.each(NONES[name])
        if then == "state":
            pair.stepper.check_settled("state_dict()")
        if then == "synchronize":
            pair.stepper.synchronize()
        if then in ("backward", "synchronize"):
            pair.backward(number + 2)
        pair.step()
        pair.each(NONES[name])
    pair.check()


def test_zeros_that_come_before_a_step(pair: Pair) -> None:
    for number in range(4):
        for model in pair.models:
            model.takes = number % 2 == 0
        pair.backward(number)
        pair.each(ZEROES["optimizer"])
        for model in pair.models:
            model.takes = False
        pair.backward(number + 2)
        pair.step()
        pair.each(ZEROES["optimizer"])
    pair.check()


def test_gradients_of_which_a_part_was_dropped_are_an_error(pair: Pair) -> None:
    model = pair.models[0]
    pair.backward(0)
    model.first.weight.grad = None
    with pytest.raises(UsageError, match="call optimizer.synchronize\\(\\) before gradients are"):
        pair.stepper.step(None)
    pair.stepper.zero_grad(True)
    model(torch.ones(2, 3)).sum().backward()
    model.last.weight.grad = None
    with pytest.raises(UsageError, match="last.weight: its gradient was dropped after"):
        model(torch.ones(2, 3)).sum().backward()


def test_zeros_that_are_not_seen_before_another_backward_are_an_error(pair: Pair) -> None:
    model = pair.models[0]
    pair.backward(0)
    model.zero_grad(set_to_none=False)
    with pytest.raises(UsageError, match="call optimizer.zero_grad\\(\\) for zeros before another"):
        model(torch.ones(2, 3)).sum().backward()


@pytest.mark.parametrize("way", WAYS)
def test_passes_begin_anew_when_gradients_are_dropped(
    make_stepper: Make, way: Tuple[bool, bool]
) -> None:
    pair = Pair(make_stepper, way, passes=2)
    for number in range(3):
        pair.backward(number)
        pair.each(NONES["None"])
        pair.backward(number + 1)
        pair.backward(number + 2)
        pair.step()
        pair.each(NONES["None"])
    pair.check()


# -- by hand -------------------------------------------------------------------------------------


def by_hand(model: Model, only: str = "") -> None:
    """Let gradients be what backward does not leave."""
    params = [param for name, param in model.named_parameters() if only in name]
    loss = model(torch.full((2, 3), 0.5)).square().sum()
    for param, grad in zip(params, torch.autograd.grad(loss, params)):
        param.grad = grad * 0.5


@pytest.mark.parametrize("way", ["plain", "clip", "part", "surgery", "inference", "graph", "one"])
def test_gradients_that_are_made_by_hand_travel(pair: Pair, way: str) -> None:
    for number in range(4):
        for model, optimizer in pair.sides:
            optimizer.zero_grad(True) if number % 2 else to_none(model, optimizer)
            if way == "part":
                params = list(model.first.parameters()) + list(model.sometimes.parameters())
                loss = model(torch.full((2, 3), 0.5)).square().sum()
                loss.backward(inputs=params)
                model.last.weight.grad = torch.ones(3, 3)
            elif way == "surgery":
                kept = []
                for task in range(2):
                    optimizer.zero_grad(True)
                    model(torch.full((2, 3), 0.1 + task)).square().sum().backward()
                    kept.append([p.grad.clone() for p in model.parameters()])
                for param, *grads in zip(model.parameters(), *kept):
                    param.grad = torch.stack(grads).mean(0)
            elif way == "inference":
                with torch.inference_mode():
                    grads = [torch.ones(p.shape) for p in model.parameters()]
                for param, grad in zip(model.parameters(), grads):
                    param.grad = grad
            elif way == "graph":
                loss = model(torch.full((2, 3), 0.5)).square().sum()
                params = list(model.parameters())
                for param, grad in zip(
                    params, torch.autograd.grad(loss, params, create_graph=True)
                ):
                    param.grad = grad
            elif way == "one":
                for param in model.parameters():
                    param.grad = torch.tensor([0.5]).expand_as(param)
            else:
                by_hand(model)
            if way == "clip":
                if isinstance(optimizer, Stepper):
                    optimizer.synchronize()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step(None)
    pair.check()


def test_a_step_without_any_gradient_is_an_error_at_first(pair: Pair) -> None:
    says = "step() came before backward(): no parameter has a gradient; call backward() first, or"
    with pytest.raises(UsageError, match=re.escape(says)):
        pair.stepper.step(None)


def test_the_state_of_an_optimizer_is_made_by_zeros(pair: Pair, job: FakeJob) -> None:
    for model, optimizer in pair.sides:
        inner = optimizer._inner if isinstance(optimizer, Stepper) else optimizer
        for param in model.parameters():
            param.grad = torch.zeros_like(param)
        inner.param_groups[0]["lr"] = 0.0
        optimizer.step(None)
        inner.param_groups[0]["lr"] = 0.1
        optimizer.zero_grad(True)
    pair.check()
    for number in range(3):
        pair.each(NONES["None"])
        pair.backward(number)
        pair.step()
    pair.check()


def test_gradients_that_a_step_left_make_no_round(pair: Pair, job: FakeJob) -> None:
    for reset in (*ZEROES.values(), *NONES.values()):
        pair.backward(0)
        pair.step()
        pair.each(reset)
        pair.stepper.synchronize()
        rounds = len(job.session.rounds)
        pair.stepper.synchronize()
        assert len(job.session.rounds) == rounds


# -- dtypes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("change", ["double", "half", "bfloat16"])
def test_a_dtype_that_changes_is_named(pair: Pair, change: str, steps: int) -> None:
    for _ in range(steps):
        pair.backward(0)
        pair.step()
        pair.each(NONES["None"])
    model = pair.models[0]
    getattr(model, change)()
    dtype = model.first.weight.dtype
    text = f"changed from torch.float32 to {dtype}; change the model first, wrap then"
    with pytest.raises(UsageError, match=text):
        model(torch.ones(2, 3, dtype=dtype)).sum().backward()


def test_a_dtype_that_changes_behind_backward_is_named(pair: Pair) -> None:
    pair.backward(0)
    pair.models[0].double()
    with pytest.raises(UsageError, match="first.weight: it changed from torch.float32 to"):
        pair.stepper.step(None)
