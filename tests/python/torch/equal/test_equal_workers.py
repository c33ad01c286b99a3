"""Workers compare weights, state and numbers: differences are named, before an update is made."""

import copy
from typing import Any, Callable, Dict, List

import pytest
import torch
from fake_job import FakeJob, peeked
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.facts import (
    CALL,
    MODEL,
    NUMBERS,
    STATE,
    WEIGHTS,
    Fact,
    Facts,
    difference,
)
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
CURE = (
    "call bytescheduler.torch.broadcast_parameters(model.state_dict(), root_rank=0) on every "
    "worker before training"
)


def told(kind: str, *values: str) -> List[Facts]:
    """Return each worker's facts; an empty value: it has none."""
    return [{"x": Fact(kind, value)} if value else {} for value in values]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (told(WEIGHTS, "a", "b"), f"x: worker 1 has other values than worker 0; {CURE}"),
        (told(WEIGHTS, "a", "a", "b", "c"), "x: worker 2 and worker 3 have other values than"),
        (
            told(WEIGHTS, "a", "b", "b", "b", "b"),
            "x: worker 1 and worker 2 and worker 3, with further ones, have other values than",
        ),
        (told(NUMBERS, "0.1", "0.1", "0.2"), "x: it is 0.1 on worker 0 and 0.2 on worker 2; give"),
        (told(STATE, "", "a"), "x: it is absent on worker 0 and there on worker 1; load the"),
        (told(STATE, "a", "b", ""), "x: it is there on worker 0 and absent on worker 2; load the"),
        (told(CALL, "1", ""), "x: it is 1 on worker 0 and absent on worker 1; pass the same to"),
        (
            told(MODEL, "float32", "int8"),
            "x: it is float32 on worker 0 and int8 on worker 1; build",
        ),
    ],
)
def test_the_sentence_names_workers_and_cure(facts: List[Facts], text: str) -> None:
    assert (difference(facts) or "").startswith(text)


def test_equal_facts_make_no_sentence() -> None:
    assert difference(told(WEIGHTS, "a", "a", "a")) is None
    assert difference([{}, {}]) is None


# -- in a job --------------------------------------------------------------------------------------


def other_facts(job: FakeJob, changes: Dict[str, str]) -> None:
    """Let the other worker have other facts, by their labels; an empty text: it has none."""

    def changed(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, (tuple, dict)):
            return value
        is_at_wrapping = isinstance(value, tuple)
        facts: Facts = dict(value[1] if is_at_wrapping else value)
        for label, text in changes.items():
            assert label in facts, list(facts)
            kind = facts.pop(label).kind
            if text:
                facts[label] = Fact(kind, text)
        return (value[0], facts) if is_at_wrapping else facts

    job.objects.changed = changed


def differ(stepper: Stepper, job: FakeJob, changes: Dict[str, str]) -> None:
    """Let the other worker send another digest with its next tally, for these reasons."""
    other_facts(job, changes)
    tally = stepper.gradients.tally
    settle = tally.settle

    def settled() -> None:
        is_over = tally.pending is not None
        settle()
        tally.differs = tally.differs or is_over

    tally.settle = settled  # type: ignore[method-assign]


def backward(model: nn.Module) -> None:
    model(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize("crossing", [True, False])
def test_no_weight_changes_before_weights_are_compared(
    job: FakeJob, make_stepper: Make, crossing: bool
) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=crossing)
    before = peeked(model.parameters())
    differ(stepper, job, {"bias": "another digest"})
    for _ in range(2):  # an error that a script catches is no agreement
        backward(model)
        with pytest.raises(UsageError, match="bias: worker 1 has other values than worker 0"):
            stepper.step(None)
        assert all(map(torch.equal, before, peeked(model.parameters())))
        for slot in stepper.gradients.slots:
            slot.state, slot.pending, slot.param.grad = 0, None, None


def test_digests_differ_and_facts_do_not(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model)
    differ(stepper, job, {})
    for _ in range(3):
        backward(model)
        stepper.step(None)


def test_the_first_round_has_all_weights_and_later_rounds_none(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    model[0].bias.requires_grad_(False)
    model[2].weight = model[0].weight
    model.register_parameter("none", nn.Parameter(torch.zeros(0, 3)))
    trained = [p for p in model.parameters() if p.requires_grad]
    seen: List[List[str]] = []

    def changed(facts: Facts) -> Facts:
        seen.append([label for label, fact in facts.items() if fact.kind == WEIGHTS])
        return facts

    stepper = make_stepper(model, torch.optim.SGD(trained, 0.5))
    assert sorted(job.objects.given) == [
        *("0.bias", "0.weight", "1.bias", "1.num_batches_tracked", "1.running_mean"),
        *("1.running_var", "1.weight", "none"),
    ]
    differ(stepper, job, {})
    job.objects.changed = changed
    for _ in range(2):
        model(torch.ones(3, 2)).sum().backward()
        stepper.step(None)
    stepper.synchronize()
    stepper.gradients.settle()
    assert [sorted(labels) for labels in seen] == [
        ["0.bias", "0.weight", "1.bias", "1.weight", "none"],
        [],
    ]


def test_a_parameter_that_joins_is_compared_in_its_first_round(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    stepper = make_stepper(model)
    backward(model)
    stepper.step(None)
    model.bias.requires_grad_(True)
    stepper.refresh(None)
    differ(stepper, job, {"bias": "another digest"})
    backward(model)
    with pytest.raises(UsageError, match="bias: worker 1 has other values"):
        stepper.step(None)


def test_a_number_of_one_worker_is_named_in_the_next_step(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model)
    backward(model)
    stepper.step(None)
    differ(stepper, job, {"lr of group 0 of the optimizer": "0.25"})
    backward(model)
    stepper.step(None)
    backward(model)
    said = "lr of group 0 of the optimizer: it is 0.5 on worker 0 and 0.25 on worker 1; give the"
    with pytest.raises(UsageError, match=said):
        stepper.step(None)


def end_job(stepper: Stepper) -> None:
    """Do as the end of a job does."""
    for flushes in list(stepper._job.unflushed):
        flushes.flush()


@pytest.mark.parametrize("crossing", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        Stepper.synchronize,
        Stepper.flush,
        lambda stepper: stepper.check_settled("state_dict()"),
        Stepper.close,
        end_job,
    ],
)
def test_a_number_of_the_last_step_is_named_at_the_end(
    job: FakeJob, make_stepper: Make, call: Callable[[Stepper], None], crossing: bool
) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=crossing)
    backward(model)
    stepper.step(None)
    stepper.zero_grad(True)
    differ(stepper, job, {"lr of group 0 of the optimizer": "0.25"})
    backward(model)
    if crossing:
        stepper.step(None)
        with torch.no_grad():
            model.weight.sum()  # no update waits
    else:
        stepper.zero_grad(True)  # no step waits for that round
    with pytest.raises(UsageError, match="it is 0.5 on worker 0 and 0.25 on worker 1"):
        call(stepper)
    assert job.unflushed == set()
    call(stepper)  # the error is raised once


def test_with_a_barrier_no_update_has_such_a_number(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, crossing=False)
    backward(model)
    stepper.step(None)
    stepper.zero_grad(True)
    before = peeked(model.parameters())
    differ(stepper, job, {"lr of group 0 of the optimizer": ""})
    backward(model)
    with pytest.raises(UsageError, match="it is 0.5 on worker 0 and absent on worker 1"):
        stepper.step(None)
    assert all(map(torch.equal, before, peeked(model.parameters())))


class Adapting(torch.optim.SGD):
    """Its steps change a number of its own, by gradients."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        self.param_groups[0]["d"] = self.param_groups[0].get("d", 0) + 1
        return super().step(closure)


def test_a_number_that_steps_change_is_not_compared(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    stepper = make_stepper(model, Adapting(model.parameters(), 0.5))
    labels: List[str] = []
    differ(stepper, job, {})
    job.objects.changed = lambda facts: (labels.extend(facts), facts)[1]
    for _ in range(3):
        backward(model)
        stepper.step(None)
    assert "lr of group 0 of the optimizer" in labels
    assert "d of group 0 of the optimizer" not in labels


# -- when an optimizer is wrapped ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "text", "said"),
    [
        ("the optimizer's class", "Adam", "it is SGD on worker 0 and Adam on worker 1; make the"),
        ("the number of the optimizer's groups", "2", "it is 1 on worker 0 and 2 on worker 1"),
        ("lr of group 0 of the optimizer", "0.1", "it is 0.5 on worker 0 and 0.1 on worker 1"),
        ("the argument op", "Sum", "it is Average on worker 0 and Sum on worker 1; pass the same"),
        (
            "buffer count",
            "torch.int64 of shape (3,)",
            "it is torch.float32 of shape (2,) on worker 0 and torch.int64 of shape (3,) on worker",
        ),
        (
            "weight",
            "torch.float32 of shape (2, 2) and frozen",
            "it is torch.float32 of shape (2, 2) on worker 0 and torch.float32 of shape (2, 2) and "
            "frozen on worker 1; build the same model on every worker",
        ),
    ],
)
def test_a_difference_is_named_before_anything_is_wrapped(
    job: FakeJob, make_stepper: Make, label: str, text: str, said: str
) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("count", torch.zeros(2))
    other_facts(job, {label: text})
    with pytest.raises(UsageError) as raised:
        make_stepper(model)
    assert str(raised.value).startswith(f"{label}: {said}")
    assert job.objects.given == []
    assert job.session.names == {}


def test_numbers_may_differ_while_one_worker_alone_has_state(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.Linear(2, 2)

    def changed(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, tuple):
            return value
        has_state, facts = value
        other = {**facts, "lr of group 0 of the optimizer": Fact(NUMBERS, "0.1")}
        return not has_state, other

    job.objects.changed = changed
    stepper = make_stepper(model)
    differ(stepper, job, {"lr of group 0 of the optimizer": "0.1"})
    backward(model)
    with pytest.raises(UsageError, match="it is 0.5 on worker 0 and 0.1 on worker 1"):
        stepper.step(None)


def test_the_state_of_one_worker_is_named_in_the_first_step(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    backward(model)
    inner.step()
    inner.zero_grad()
    stepper = make_stepper(model, inner)
    differ(stepper, job, {"momentum_buffer of bias in the optimizer's state": ""})
    backward(model)
    said = (
        "momentum_buffer of bias in the optimizer's state: it is there on worker 0 and absent on "
        r"worker 1; load the checkpoint on every worker, or call "
        r"bytescheduler.torch.broadcast_optimizer_state\(optimizer, root_rank=0\) on every worker"
    )
    with pytest.raises(UsageError, match=said):
        stepper.step(None)


@pytest.mark.parametrize("crossing", [True, False])
@pytest.mark.parametrize("label", ["momentum_buffer of bias in the optimizer's state", "weight"])
def test_a_state_that_a_worker_loads_later_is_compared(
    job: FakeJob, make_stepper: Make, crossing: bool, label: str
) -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    stepper = make_stepper(model, inner, crossing=crossing)

    def stepped() -> None:
        backward(model)
        stepper.step(None)
        stepper.zero_grad(True)

    for _ in range(3):
        stepped()
    inner.load_state_dict(copy.deepcopy(inner.state_dict()))
    differ(stepper, job, {})
    stepped()

    def changed(facts: Facts) -> Facts:
        kind = STATE if "state" in label else WEIGHTS
        return {**facts, label: Fact(kind, "another digest")} if label in facts else facts

    job.objects.changed = changed
    with pytest.raises(UsageError, match=f"{label}: worker 1 has other values"):
        stepped()


def test_a_state_that_all_workers_load_is_compared_once(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    stepper = make_stepper(model, inner)
    agreement = stepper.gradients.agreement
    urgent = []
    for step in range(6):
        if step == 2:
            inner.load_state_dict(copy.deepcopy(inner.state_dict()))
        backward(model)
        digest = agreement.digest

        def noted(digest: Callable[[], int] = digest) -> int:
            result = digest()
            urgent.append(agreement.is_urgent)
            return result

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(agreement, "digest", noted)
            stepper.step(None)
        stepper.zero_grad(True)
    assert urgent == [True, False, False, True, False, False]


def test_a_compiled_model_is_given_as_itself(job: FakeJob, make_stepper: Make) -> None:
    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    make_stepper(compiled, torch.optim.SGD(model.parameters(), 0.5))
    assert job.objects.given == ["weight", "bias"]
