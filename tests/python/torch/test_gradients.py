"""Gradients on their way: memory, unused ones, rounds that nothing wants."""

import gc
import pathlib
import threading
import time
from typing import Any, Callable, Iterator

import pytest
import torch
import torch.distributed.fsdp
from fake_job import FakeJob
from inline_snapshot import snapshot
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.checks import check_parameter
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.sender import GradientOptions
from bytescheduler.torch._gradients.slot import IDLE, PUSHED, SUMMED
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]


def test_gradients_with_other_strides_are_copied_first(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
    model.weight = nn.Parameter(torch.ones(4, 2, 3, 3).to(memory_format=torch.channels_last))
    stepper = make_stepper(model, crossing=False)
    model.weight.grad = torch.arange(72.0).view(4, 2, 3, 3)
    want = model.weight.grad.clone()
    stepper.gradients.arrived(stepper.gradients.slots[0])
    stepper.synchronize(always=True)
    assert torch.equal(model.weight.grad, want)


@pytest.mark.usefixtures("singly")
def test_a_parameter_that_no_worker_uses_keeps_weight_and_state(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    inner = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
    before = model[1].weight.detach().clone()
    for crossing in (True, False):
        stepper = make_stepper(model, inner, crossing=crossing)
        for _ in range(2):
            model[0](torch.ones(1, 2)).sum().backward()
            stepper.step(None)
            stepper.zero_grad(True)
        stepper.close()
    assert torch.equal(model[1].weight, before)
    assert model[1].weight not in inner.state
    zeros = {r.places[0][0] for r in job.session.rounds[2:4]}
    assert len(zeros) == 1  # one piece of memory for all that is unused


@pytest.mark.usefixtures("singly")
def test_a_round_that_nothing_wants_ends_and_frees_no_memory_too_soon(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=False)
    model(torch.ones(1, 2)).sum().backward()
    received = [slot.recv for slot in stepper.gradients.slots]
    stepper.zero_grad(set_to_none=False)
    assert torch.equal(model.weight.grad, torch.zeros(2, 2))
    assert len(stepper.gradients.unfinished()) == 2  # the tally of the first round is over
    model(torch.ones(1, 2)).sum().backward()
    for slot, before in zip(stepper.gradients.slots, received):
        assert slot.state == PUSHED
        assert slot.recv is not None
        assert slot.recv.data_ptr() != before.data_ptr()
    stepper.step(None)


def test_a_step_that_was_left_out_leaves_nothing_behind(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=False)
    slots = stepper.gradients.slots
    for again in (lambda: stepper.zero_grad(True), lambda: None):
        model(torch.ones(1, 2)).sum().backward()
        stepper.before_groups()  # GradScaler finds an overflow, and does not step
        assert {slot.state for slot in slots} == {SUMMED}
        again()
        model(torch.ones(1, 2)).sum().backward()
        assert {slot.state for slot in slots} == {PUSHED}
        stepper.step(None)
        assert {slot.state for slot in slots} == {IDLE}
        stepper.zero_grad(True)


def test_the_gradient_stays_the_same_object(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=False)
    model(torch.ones(1, 2)).sum().backward()
    kept = model.weight.grad
    stepper.synchronize()
    assert model.weight.grad is kept


def test_workers_that_do_something_else_are_found(job: FakeJob, make_stepper: Make) -> None:
    def other(tally: Any, at: int, number: int) -> None:  # noqa: ANN401
        tally._pending.wait()
        tally._recv[at] += number

    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=True)
    for _ in range(2):  # the first round is settled at once
        model(torch.ones(1, 2)).sum().backward()
        stepper.step(None)
    tally = stepper.gradients.tally
    tally._pending.wait()
    tally._recv[0] += 1
    with pytest.raises(UsageError, match="call step\\(\\) equally often on every worker"):
        tally.settle()
    assert "equally often" in job.session.why
    tally.start(0, [True, True])
    tally._pending.wait()
    tally._recv[1:3] = [1, 1]
    with pytest.raises(UsageError, match="on another worker by synchronize\\(\\) before step"):
        tally.settle()


def test_a_tensor_that_backward_leaves_no_gradient_in_is_refused() -> None:
    made = nn.Parameter(torch.ones(2)) * 2
    with pytest.raises(UsageError, match="made: it is no leaf"):
        check_parameter("made", made)


def test_hooks_of_two_devices_begin_one_round(job: FakeJob) -> None:
    begun = []

    def begin() -> None:
        time.sleep(0.02)  # gives the other thread its turn
        begun.append(threading.current_thread())

    model = nn.Linear(2, 2)
    members = [(name, param, 0) for name, param in model.named_parameters()]
    gradients = Gradients(job, members, GradientOptions(), begin)  # type: ignore[arg-type]
    model.weight.grad, model.bias.grad = torch.ones(2, 2), torch.ones(2)
    hooks = [threading.Thread(target=gradients.arrived, args=(s,)) for s in gradients.slots]
    for hook in hooks:
        hook.start()
    for hook in hooks:
        hook.join()
    assert len(begun) == 1
    assert [slot.state for slot in gradients.slots] == [PUSHED, PUSHED]
    gradients.close()


def test_a_model_that_moves_after_it_was_wrapped_is_refused(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=False)
    slot = stepper.gradients.slots[0]
    slot.param = nn.Parameter(torch.ones(2, 2, device="meta"))
    moved = "weight: it moved from cpu to meta; move the model first, wrap then"
    with pytest.raises(UsageError, match=moved):
        stepper.gradients.complete(0)  # it has no gradient
    slot.param.grad = torch.ones(2, 2, device="meta")
    bias = stepper.gradients.slots[1]
    bias.param.grad = torch.ones(2)
    stepper.gradients.arrived(bias)
    with pytest.raises(UsageError, match=moved):
        stepper.gradients.arrived(slot)


@pytest.mark.usefixtures("singly")
def test_a_default_device_changes_nothing(job: FakeJob, make_stepper: Make) -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    inputs = torch.ones(1, 2)
    before = model[0].weight.detach().clone()
    with torch.device("meta"):
        stepper = make_stepper(model, crossing=False)
        model[0](inputs).sum().backward()  # nothing uses the other one
        stepper.step(None)
    assert len(job.session.rounds) == 5  # all in the memory of the CPU, and the tally too
    assert not torch.equal(model[0].weight, before)


@pytest.mark.parametrize("kind", ["DTensor", "FlatParameter"])
def test_parts_of_parameters_are_refused(make_stepper: Make, kind: str) -> None:
    model = nn.Linear(2, 2)
    model.weight = type(kind, (nn.Parameter,), {})(torch.ones(2, 2))
    with pytest.raises(UsageError, match="weight: it is sharded"):
        make_stepper(model)


def test_dtypes_that_servers_cannot_sum_are_refused(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    model.weight = nn.Parameter(torch.ones(2, 2).to(torch.float8_e4m3fn))
    with pytest.raises(UsageError, match="weight: servers cannot sum torch.float8_e4m3fn"):
        make_stepper(model)


class Joint(nn.Module):
    """Its gradients are parts of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList([torch.ones(2, 2) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(self.parts)) @ x


@pytest.mark.parametrize("crossing", [True, False])
def test_gradients_that_are_parts_of_one_tensor_accumulate(
    make_stepper: Make, crossing: bool
) -> None:
    model, alone = Joint(), Joint()
    stepper = make_stepper(model, crossing=crossing, passes=2)
    optimizer = torch.optim.SGD(alone.parameters(), 0.5)
    for _ in range(2):
        for number in (1, 2):
            for each in (model, alone):
                each(torch.ones(2) * number).sum().backward()
        stepper.step(None)
        stepper.zero_grad(False)
        optimizer.step()
        optimizer.zero_grad(False)
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)
    for changed in range(3):
        for _ in range(2):
            model(torch.ones(2)).sum().backward()
        model.parts[changed].grad.mul_(2)
        with pytest.raises(UsageError) as raised:
            stepper.step(None)
        assert str(raised.value) == snapshot(
            "parts.0: its gradient was changed after backward sent it; call "
            "optimizer.synchronize() before gradients are clipped, scaled or set to zero, or "
            "optimizer.zero_grad() before p.grad gets values that no backward made"
        )
        stepper.zero_grad(True)


def test_a_change_is_found_beside_a_gradient_that_was_changed_as_often(make_stepper: Make) -> None:
    model = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])
    stepper = make_stepper(model, passes=2)
    for _ in range(2):
        for _ in range(2):
            sum(layer(torch.ones(2)).sum() for layer in model).backward()
            if stepper.gradients.slots[0].state == IDLE:
                model[0].weight.grad.mul_(2)
        model[1].weight.grad.mul_(2)
        with pytest.raises(UsageError, match="1.weight: its gradient was changed"):
            stepper.step(None)
        stepper.zero_grad(True)


class Complex(nn.Module):
    """Backward leaves it a gradient whose memory is the conjugate of what it means."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.factor.conj() * x).sum().imag


@pytest.mark.parametrize("crossing", [True, False])
def test_conjugate_gradients_equal_the_gradients_of_one_process(
    make_stepper: Make, crossing: bool
) -> None:
    model, alone = Complex(), Complex()
    stepper = make_stepper(model, crossing=crossing)
    optimizer = torch.optim.SGD(alone.parameters(), 0.5)
    for number in range(4):
        for each in (model, alone):
            each(torch.tensor([1 + 3j, 2 - 5j]) * number).backward()
        stepper.step(None)
        stepper.zero_grad(True)
        optimizer.step()
        optimizer.zero_grad()
    stepper.synchronize()
    assert torch.equal(model.factor, alone.factor)


def test_a_parameter_that_is_no_leaf_is_named_by_the_optimizer(make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), 0.5)
    made = model.weight * 2
    inner.param_groups[0]["params"][0] = made  # as some code does that builds weights anew
    with pytest.raises(UsageError, match="made: it is no leaf"):
        make_stepper(None, inner, named_parameters=[("made", made), ("bias", model.bias)])


@pytest.fixture
def _process_group(tmp_path: pathlib.Path) -> Iterator[None]:
    meeting = f"file://{tmp_path / 'meet'}"
    torch.distributed.init_process_group("gloo", meeting, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_process_group")
def test_a_model_that_pytorch_shards_is_refused_by_its_parameter_or_module(
    make_stepper: Make,
) -> None:
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    torch.distributed.fsdp.fully_shard(model[1], mesh=mesh)
    with pytest.raises(UsageError, match=r"^1: it is sharded \(FSDP\), .*: leave FSDP out"):
        make_stepper(model)
    inner = torch.optim.SGD(model.parameters(), 0.5)
    named = list(model.named_parameters())
    with pytest.raises(UsageError, match=r"^1.weight: it is sharded \(DTensor\), .*: leave FSDP"):
        make_stepper(None, inner, named_parameters=named)


@pytest.mark.usefixtures("singly")
def test_a_closed_optimizer_gives_its_keys_back_once(job: FakeJob, make_stepper: Make) -> None:
    stepper = make_stepper(nn.Linear(2, 2))
    assert not job.session.given_back
    stepper.close()
    keys = ["weight", "bias", "tally 1 of all gradients"]
    assert job.session.given_back == keys
    del stepper
    gc.collect()
    assert job.session.given_back == keys


def test_an_optimizer_that_is_garbage_gives_its_keys_back(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model)
    model(torch.ones(1, 2)).sum().backward()
    stepper.step(None)
    stepper.synchronize()
    job.unflushed.clear()
    del stepper, model
    gc.collect()
    assert job.session.given_back == ["bundle of weight", "tally 1 of all gradients"]


def test_the_first_step_collects_an_optimizer_before_it(job: FakeJob, make_stepper: Make) -> None:
    def trained() -> Stepper:
        model = nn.Linear(2, 2)
        stepper = make_stepper(model)
        model(torch.ones(1, 2)).sum().backward()
        stepper.step(None)
        stepper.synchronize()
        return stepper

    gc.disable()
    try:
        stepper = trained()
        job.unflushed.clear()
        del stepper
        trained()
        assert len(job.session.given_back) == 2
    finally:
        gc.enable()
