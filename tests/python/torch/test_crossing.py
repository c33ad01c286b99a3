"""Forward begins while sums are held back, and every wait happens where a weight is used."""

import gc
import threading
import time
import weakref
from typing import Any, Callable, List

import pytest
import torch
from fake_job import FakeJob, FakePending, Held, peeked
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from bytescheduler.errors import PeerLost, UsageError
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
ONES = torch.ones(2, 3)


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))


def stepped(stepper: Stepper, model: nn.Module) -> None:
    model(ONES).sum().backward()
    stepper.step(None)


def stepped_alone() -> nn.Sequential:
    """Return layers after a step of the plain optimizer."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    model(ONES).sum().backward()
    optimizer.step()
    return model


def ran(model: nn.Sequential) -> List[int]:
    """Return a list that grows with the layers that run from now on."""
    seen: List[int] = []
    for number, layer in enumerate(model):
        layer.register_forward_hook(lambda *_, number=number: seen.append(number))
    return seen


@pytest.mark.usefixtures("singly")
def test_forward_runs_up_to_the_layer_with_a_missing_sum(job: FakeJob, make_stepper: Make) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    job.session.held = ["2.weight"]
    seen = ran(model)
    for _ in range(2):  # the wait that was interrupted has changed nothing
        with pytest.raises(Held):
            model(ONES)
    assert seen == [0, 1, 0, 1]
    job.session.held = []
    stepper.synchronize()
    alone = stepped_alone()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("singly")
def test_arrived_parameters_are_updated_along_up_to_a_missing_sum(
    job: FakeJob, make_stepper: Make
) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    names = [name for name, _ in model.named_parameters()]
    job.session.arrived = [name for name in names if name != "1.bias"]
    before = peeked(model.parameters())
    model[0](ONES)
    pairs = zip(names, before, peeked(model.parameters()))
    changed = [name for name, old, new in pairs if not torch.equal(old, new)]
    assert changed == ["0.weight", "0.bias", "1.weight"]
    stepper.synchronize()
    assert stepper.gradients.unfinished() == []


@pytest.mark.usefixtures("singly")
def test_a_sum_that_failed_is_told_by_the_guard_of_its_weight(
    job: FakeJob, make_stepper: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def over() -> bool:
        raise PeerLost("worker 1 was lost", 4)

    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    monkeypatch.setattr(stepper.gradients.slots[2].pending, "over", over)
    model[0](ONES)
    job.session.failure = PeerLost("worker 1 was lost", 4)
    with pytest.raises(PeerLost):
        model[1](ONES)


def test_a_large_weight_is_updated_where_it_is_used(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1 << 17, bias=False))
    stepper = make_stepper(model)
    stepped(stepper, model)
    job.session.arrived = ["1.weight"]
    (before,) = peeked([model[1].weight])
    model[0](ONES)
    assert torch.equal(*peeked([model[1].weight]), before)
    model[1](ONES)
    assert not torch.equal(model[1].weight, before)


@pytest.mark.usefixtures("singly")
def test_with_a_barrier_step_waits_for_every_sum(job: FakeJob, make_stepper: Make) -> None:
    model = layers()
    stepper = make_stepper(model, crossing=False)
    model(ONES).sum().backward()
    job.session.held = ["2.weight"]
    with pytest.raises(Held):
        stepper.step(None)


def test_numbers_are_taken_at_the_moment_of_step(make_stepper: Make) -> None:
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.detach().clone()
    rate = torch.tensor(0.25)
    inner = torch.optim.SGD(model.parameters(), rate, foreach=True)
    stepper = make_stepper(model, inner)
    model(torch.ones(1, 1)).sum().backward()
    stepper.step(None)
    rate.fill_(100.0)  # as a scheduler does
    inner.param_groups[0]["weight_decay"] = 100.0
    model(torch.ones(1, 1))
    assert torch.equal(model.weight, before - 0.25)


@pytest.mark.usefixtures("singly")
def test_the_first_layer_is_the_most_urgent_and_its_gradient_comes_last(
    job: FakeJob, make_stepper: Make
) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    names = job.session.sent()
    assert names.index("2.weight") < names.index("0.weight")
    urgency = {job.session.names[r.key]: r.call.priority for r in job.session.rounds}
    assert urgency["0.weight"] > urgency["1.weight"] > urgency["2.weight"]
    called = {job.session.names[r.key]: r.call.called for r in job.session.rounds}
    assert 0 < called["0.weight"] < called["2.weight"]


@pytest.mark.usefixtures("singly")
def test_timelines_have_the_names_of_parameters_again_in_the_order_of_forward(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("last", "first")})
    stepper = make_stepper(model)
    assert job.session.shown[:2] == ["last.weight", "first.weight"]
    told = len(job.session.shown)
    for _ in range(2):
        model["last"](model["first"](torch.ones(1, 2))).sum().backward()
        stepper.step(None)
    assert job.session.shown[told:] == ["first.weight", "last.weight"]


def test_a_gradient_of_a_weight_that_was_used_unseen_fails_the_job(
    job: FakeJob, make_stepper: Make
) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    with torch._C.DisableTorchFunctionSubclass():  # as C++ code does
        stale = nn.functional.linear(ONES, model[2].weight)
    with pytest.raises(UsageError, match="2.weight: a gradient came after step"):
        stale.sum().backward()
    assert "optimizer.synchronize()" in job.session.why


def test_a_lost_peer_is_an_error_of_the_forward_pass(job: FakeJob, make_stepper: Make) -> None:
    model = layers()
    stepped(make_stepper(model), model)
    job.session.failure = PeerLost("worker 1 was lost", 4)
    with pytest.raises(PeerLost, match="worker 1 was lost"):
        model(ONES)


@pytest.mark.parametrize("crossing", [True, False])
def test_hooks_of_optimizers_run_once_a_step_and_see_the_newest_weights(
    make_stepper: Make, crossing: bool
) -> None:
    def seen(
        model: nn.Sequential, step: Callable[[torch.optim.Optimizer], Callable[[], object]]
    ) -> List[object]:
        def after(*_: object) -> None:
            calls.extend(["after", *[param.tolist() for param in model.parameters()]])

        inner = torch.optim.SGD(model.parameters(), 0.5)
        calls: List[object] = []
        handles = [
            register_optimizer_step_pre_hook(lambda *_: calls.append("before all")),
            register_optimizer_step_post_hook(lambda *_: calls.append("after all")),
        ]
        inner.register_step_pre_hook(lambda *_: calls.append("before"))
        inner.register_step_post_hook(after)
        steps = step(inner)
        try:
            for _ in range(2):
                model(ONES).sum().backward()
                steps()
                inner.zero_grad()
        finally:
            for handle in handles:
                handle.remove()
        return calls

    def ours(inner: torch.optim.Optimizer) -> Callable[[], object]:
        stepper = make_stepper(model, inner, crossing=crossing)
        return lambda: stepper.step(None)

    model = layers()
    assert seen(model, ours) == seen(layers(), lambda inner: inner.step)


def test_state_made_in_inference_mode_is_ordinary(make_stepper: Make) -> None:
    model = layers()
    stepper = make_stepper(model, torch.optim.Adam(model.parameters()))
    stepped(stepper, model)
    with torch.inference_mode():
        model(ONES)
    stepped(stepper, model)
    stepper.synchronize()


def test_the_numbers_of_steps_and_the_memory_stay_bounded(job: FakeJob, make_stepper: Make) -> None:
    model = layers()
    stepper = make_stepper(model)
    places = set()
    for _ in range(5):
        stepped(stepper, model)
        stepper.zero_grad(True)
        stepper.synchronize()
        places.add(tuple(slot.recv.data_ptr() for slot in stepper.gradients.slots))
    assert len(places) == 1  # sums arrive where they did before


def run_together(*calls: Callable[[], object]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_run_one_model_make_each_update_once(
    job: FakeJob, make_stepper: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(pending: FakePending) -> None:
        time.sleep(0.01)  # gives the other threads their turn
        pending.wait()

    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    alone = stepped_alone()
    monkeypatch.setattr(job.session, "wait", wait)
    outputs: List[torch.Tensor] = []
    run_together(*[lambda: outputs.append(model(ONES))] * 4)
    assert [torch.equal(output, alone(ONES)) for output in outputs] == [True] * 4
    assert stepper._updates.waiting == 0


class Slow(torch.optim.SGD):
    """Takes its time, in which other threads run."""

    def step(self, closure: object = None) -> None:
        time.sleep(0.05)
        super().step()


def test_no_thread_passes_while_another_one_updates(make_stepper: Make) -> None:
    model = nn.Linear(3, 3)
    stepper = make_stepper(model, Slow(model.parameters(), 0.5))
    stepped(stepper, model)
    outputs: List[torch.Tensor] = []
    run_together(lambda: model(ONES), lambda: (time.sleep(0.02), outputs.append(model(ONES))))
    assert torch.equal(outputs[0], model(ONES))


def test_updates_outlive_an_optimizer_that_is_dropped(job: FakeJob, make_stepper: Make) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    alone = stepped_alone()
    gone = weakref.ref(stepper._updates)
    del stepper
    gc.collect()
    assert torch.equal(model(ONES), alone(ONES))
    assert not job.unflushed
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda param: param.clamp_(-0.1, 0.1),
        lambda param: param[:1].zero_(),
        nn.init.zeros_,
        lambda param: param.detach().mul_(0.5),
    ],
)
@pytest.mark.parametrize("arrived", [[], ["0.weight", "0.bias", "1.weight"]])
def test_a_weight_that_changes_unseen_before_its_update_is_an_error(
    job: FakeJob, make_stepper: Make, change: Callable[[torch.Tensor], object], arrived: List[str]
) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    job.session.arrived = arrived
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        change(model[1].weight)
    for _ in range(2):
        with pytest.raises(UsageError, match="1.weight: it was changed after step.*synchronize"):
            model(ONES)


def joint(layer: nn.Sequential, split: Callable[[torch.Tensor, int, int], torch.Tensor]) -> None:
    """Put the weights of all layers into one tensor."""
    flat = torch.cat([part.weight.detach().reshape(-1) for part in layer])
    for at, part in enumerate(layer):
        part.weight = nn.Parameter(split(flat, 9 * at, 9 * at + 9).view(3, 3))


@pytest.mark.parametrize(
    ("split", "crosses"),
    [
        (lambda flat, begin, end: flat[begin:end], False),  # they count their changes together
        (lambda flat, begin, end: flat.data[begin:end].data, True),
        (lambda flat, begin, end: flat.data[: end - begin].data, False),  # they overlap
    ],
)
def test_weights_that_are_parts_of_one_tensor(
    make_stepper: Make, split: Callable[..., torch.Tensor], crosses: bool
) -> None:
    model, alone = layers(), layers()
    for each in (model, alone):
        joint(each, split)
    stepper = make_stepper(model, torch.optim.SGD(model.parameters(), 0.5, momentum=0.5))
    optimizer = torch.optim.SGD(alone.parameters(), 0.5, momentum=0.5)
    assert stepper.crosses == crosses
    for _ in range(4):
        stepped(stepper, model)
        stepper.zero_grad(True)
        alone(ONES).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_transforms_of_the_forward_pass_contain_no_update(job: FakeJob, make_stepper: Make) -> None:
    def gradient_of(model: nn.Module) -> object:
        weights = dict(model.named_parameters())
        return torch.func.grad(
            lambda given: torch.func.functional_call(model, given, (ONES,)).square().sum()
        )(weights)

    def traced(model: nn.Module) -> object:
        graph = torch.jit.trace(model, ONES, check_trace=False)
        return [graph(ONES), str(graph.inlined_graph).count("= aten::")]

    model, alone = layers(), layers()
    stepper = make_stepper(model)
    optimizer = torch.optim.SGD(alone.parameters(), 0.5)
    for call in (gradient_of, traced, lambda each: torch.vmap(each)(torch.ones(4, 2, 3))):
        stepped(stepper, model)
        stepper.zero_grad(True)
        alone(ONES).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        for each in job.session.rounds:
            each.wait()  # the engine receives without PyTorch
        got, want = call(model), call(alone)
        assert str(got) == str(want)
        for one, other in zip(model.parameters(), alone.parameters()):
            assert torch.equal(one, other)


def test_updates_are_the_same_inside_autocast(make_stepper: Make) -> None:
    model, alone = layers(), layers()
    stepper = make_stepper(model, torch.optim.Adafactor(model.parameters(), lr=0.1))
    optimizer = torch.optim.Adafactor(alone.parameters(), lr=0.1)
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            losses = [each(ONES).float().sum() for each in (model, alone)]
        for loss in losses:
            loss.backward()
        stepper.step(None)
        stepper.zero_grad(True)
        optimizer.step()
        optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        model(ONES)
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)
    assert stepper.crosses


def test_a_signal_may_make_the_updates_that_a_guard_waits_for(
    make_stepper: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = layers()
    stepper = make_stepper(model)
    stepped(stepper, model)
    wait, handled = stepper.gradients.wait, []

    def interrupted(slots: Any) -> None:  # noqa: ANN401
        wait(slots)
        if not handled:  # as the handler of a signal does that comes during the wait
            handled.append(True)
            model.state_dict()

    monkeypatch.setattr(stepper.gradients, "wait", interrupted)
    model(ONES)
    assert handled
    alone = stepped_alone()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_a_callback_that_fails_leaves_no_update_behind(make_stepper: Make, job: FakeJob) -> None:
    def on_gradient(param: nn.Parameter) -> None:
        raise ZeroDivisionError

    model = layers()
    stepper = make_stepper(model, on_gradient=on_gradient)
    stepped(stepper, model)
    stepper.zero_grad(True)
    for _ in model:
        with pytest.raises(ZeroDivisionError):
            model(ONES)
        if not job.unflushed:
            break
    assert not job.unflushed
    model(ONES)
    assert all(each.grad is None for each in model.parameters())
