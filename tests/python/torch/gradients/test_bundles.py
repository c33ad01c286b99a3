"""Bundles: small gradients in one round, with the weights of one process, bit for bit."""

import copy
import warnings
from typing import Any, Callable, Dict, List, Type

import pytest
import torch
from fake_job import FakeJob, FakePending, Held, peeked
from inline_snapshot import snapshot
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients import bundle
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.sender import GradientOptions
from bytescheduler.torch._gradients.slot import ARMED, IDLE, PUSHED
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._sums.choice import choice_of
from bytescheduler.torch._sums.compression import Compression, Compressor, scaled

Make = Callable[..., Stepper]
TALLY = "tally 1 of all gradients"


class Odd(nn.Module):
    """Parameters of many shapes and strides, one of another dtype, one large, two tied."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(5)
        self.large = nn.Linear(5, 1000)
        self.narrow = nn.Linear(1000, 3, dtype=torch.float64)
        self.out = nn.Linear(3, 7)
        self.tied = nn.Linear(3, 7)
        self.tied.weight = self.out.weight
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x)).amax((2, 3))
        x = self.narrow(self.large(x).double()).float()
        return (self.out(x) * self.scale + self.tied(x)).tanh().mean()


def data(step: int) -> torch.Tensor:
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(step))


def made() -> Odd:
    torch.manual_seed(3)
    return Odd()


def row(count: int = 4, width: int = 3) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def trained(model: nn.Module, inner: Any, stepper: Any, **options: Any) -> List[torch.Tensor]:  # noqa: ANN401
    """Return all weights after some steps, with two backward passes each where `twice` says so."""
    for step in range(4):
        for number in range(1 + options.get("twice", 0)):
            model(data(step + 10 * number)).backward()
        if options.get("clips"):
            if stepper is not None:
                stepper.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if stepper is None:
            inner.step()
            inner.zero_grad()
        else:
            stepper.step(None)
            stepper.zero_grad(True)
    if stepper is not None:
        stepper.synchronize()
    return [param.detach().clone() for param in model.parameters()]


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, 0.01, momentum=0.9, weight_decay=0.1),
    "sgd-foreach": lambda params: torch.optim.SGD(params, 0.01, momentum=0.9, foreach=True),
    "adam": lambda params: torch.optim.Adam(params, 0.01),
    "adam-fused": lambda params: torch.optim.Adam(params, 0.01, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("crossing", [True, False])
def test_weights_equal_the_weights_of_one_process_bit_for_bit(
    job: FakeJob, make_stepper: Make, name: str, crossing: bool
) -> None:
    alone, model = made(), made()
    inner = OPTIMIZERS[name](alone.parameters())
    want = trained(alone, inner, None)
    inner = OPTIMIZERS[name](model.parameters())
    stepper = make_stepper(model, inner, crossing=crossing)
    got = trained(model, inner, stepper)
    assert [slot.bundle is not None for slot in stepper.gradients.slots].count(True) == 9
    for one, other in zip(got, want):
        assert torch.equal(one, other)


FORMS = {
    "plain": {},
    "momentum": {"momentum": 0.9, "dampening": 0.1},
    "decay": {"momentum": 0.9, "weight_decay": 0.1, "maximize": True},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "tensor": {"lr": torch.tensor(0.01)},
    "one by one": {"foreach": False},
}


@pytest.mark.parametrize("form", FORMS)
def test_many_weights_of_plain_sgd_are_updated_by_one_call_with_its_bits(
    make_stepper: Make, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    alone, model = row(40), row(40)
    plain, inner = (
        torch.optim.SGD(each.parameters(), **{"lr": 0.01, **FORMS[form]}) for each in (alone, model)
    )
    stepper = make_stepper(model, inner)
    calls: List[int] = []
    together = torch._foreach_add_

    def noted(tensors: List[torch.Tensor], *args: Any, **named: Any) -> Any:  # noqa: ANN401
        calls.append(len(tensors))
        return together(tensors, *args, **named)

    for number in range(4):
        for each in (alone, model):
            each(torch.full((2, 3), 0.5 + number)).square().sum().backward()
        plain.step()
        stepper.step(None)
        with monkeypatch.context() as patched:
            patched.setattr(torch, "_foreach_add_", noted)
            stepper.flush()
        for one, other in zip(model.parameters(), alone.parameters()):
            assert torch.equal(one, other)
            assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]
        stepper.zero_grad(True)
        plain.zero_grad()
    assert bool(calls) is (form in ("plain", "momentum", "decay"))
    assert set(calls) <= {80}
    assert inner.param_groups[0]["foreach"] is (False if form == "one by one" else None)


def test_versions_without_a_copy_of_many_tensors_copy_each(
    make_stepper: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = []
    for is_old in (True, False):
        with monkeypatch.context() as old:
            if is_old:
                old.delattr(torch, "_foreach_copy_")
            model = made()
            inner = OPTIMIZERS["sgd"](model.parameters())
            weights.append(trained(model, inner, make_stepper(model, inner)))
    for one, other in zip(*weights):
        assert torch.equal(one, other)


@pytest.mark.parametrize("options", [{"twice": 1}, {"clips": 1}])
def test_accumulated_and_clipped_gradients_train_as_in_one_process_bit_for_bit(
    make_stepper: Make, options: Dict[str, int]
) -> None:
    alone, model = made(), made()
    inner = OPTIMIZERS["sgd"](alone.parameters())
    want = trained(alone, inner, None, **options)
    inner = OPTIMIZERS["sgd"](model.parameters())
    stepper = make_stepper(model, inner, passes=1 + options.get("twice", 0))
    for one, other in zip(trained(model, inner, stepper, **options), want):
        assert torch.equal(one, other)


def test_neighbours_of_one_dtype_share_a_round_and_a_large_gradient_has_its_own(
    job: FakeJob, make_stepper: Make
) -> None:
    model = made()
    stepper = make_stepper(model, crossing=False)
    model(data(0)).backward()
    names = job.session.sent()
    # The two of float64: one is large, and so the other one has no neighbour.
    assert sorted(names) == ["bundle of scale", "large.weight", "narrow.bias", "narrow.weight"]
    stepper.close()


def test_a_bundle_ends_at_its_bounds(make_stepper: Make) -> None:
    model = nn.ParameterList([torch.ones(1 << 10) for _ in range(40)])  # 4 KiB each
    slots = make_stepper(model).gradients.slots
    counts = [sum(slot.bundle is of for slot in slots) for of in {slot.bundle for slot in slots}]
    assert sorted(counts) == [8, 16, 16]
    far = nn.ParameterList([torch.ones(1), torch.ones(1 << 15), torch.ones(1), torch.ones(1)])
    slots = make_stepper(far).gradients.slots
    assert [slot.bundle is None for slot in slots] == [True, True, False, False]


def test_parts_are_where_pytorch_would_begin_a_tensor(make_stepper: Make) -> None:
    for slot in make_stepper(made()).gradients.slots:
        if slot.bundle is not None:
            assert slot.recv.data_ptr() % 64 == 0
            assert slot.recv.stride() == slot.param.stride()
            assert not slot.recv._is_view()


class Doubled(Compressor):
    """A compressor of a script, which may look at a tensor as a whole."""


@pytest.mark.parametrize(
    ("compression", "is_bundled"),
    [
        (Compression.none, True),
        (Compression.fp16, True),
        (Compression.bf16, True),
        (scaled(Compression.fp16, 0.5, 2), True),
        (Compression.two_bit(0.5), False),
        (Doubled, False),
        (scaled(Doubled, 0.5, 2), False),
    ],
)
def test_only_codings_of_single_elements_are_bundled_and_bits_stay(
    make_stepper: Make,
    monkeypatch: pytest.MonkeyPatch,
    compression: Type[Compressor],
    is_bundled: bool,
) -> None:
    weights = []
    for small_bytes in (bundle.SMALL_BYTES, 0):
        monkeypatch.setattr(bundle, "SMALL_BYTES", small_bytes)
        model = made()
        inner = OPTIMIZERS["sgd"](model.parameters())
        stepper = make_stepper(model, inner, choice=choice_of(compression, None))
        weights.append(trained(model, inner, stepper))
        bundles = {slot.bundle for slot in stepper.gradients.slots} - {None}
        assert bool(bundles) == (is_bundled and small_bytes > 0)
    for one, other in zip(*weights):
        assert torch.equal(one, other)


def test_members_may_come_in_any_order(job: FakeJob) -> None:
    params = [nn.Parameter(torch.ones(at + 1)) for at in range(3)]
    members = [(f"p{at}", param, 0) for at, param in enumerate(params)]
    gradients = Gradients(job, members, GradientOptions())  # type: ignore[arg-type]
    for order in ([0, 1, 2], [2, 0, 1]):
        for at in order:
            assert job.session.rounds == []
            params[at].grad = torch.full((at + 1,), at + 1.0)
            gradients.arrived(gradients.slots[at])
        ((send, _),) = [pending.memory for pending in job.session.rounds]
        assert send.tolist() == [1.0] + [0.0] * 15 + [2.0] * 2 + [0.0] * 14 + [3.0] * 3 + [0.0] * 13
        gradients.sum_up()
        gradients.forget_sums()
        job.session.rounds.clear()
    gradients.close()


@pytest.mark.parametrize("crossing", [True, False])
def test_a_member_that_no_worker_uses_keeps_weight_and_state(
    job: FakeJob, make_stepper: Make, crossing: bool
) -> None:
    model = row(3)
    inner = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
    stepper = make_stepper(model, inner, crossing=crossing)
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    stepper.zero_grad(True)
    stepper.synchronize()
    before = peeked(model[1].parameters())
    steps = inner.state[model[1].weight]["step"].item()
    job.session.rounds.clear()
    model[2](model[0](torch.ones(1, 3))).sum().backward()
    assert job.session.rounds == []  # the members of the layer in the middle are awaited
    stepper.step(None)
    send, _ = job.session.rounds[0].memory
    assert not send[2 * 16 : 4 * 16].any()  # not the gradients of the step before
    stepper.synchronize()
    assert all(torch.equal(*pair) for pair in zip(before, model[1].parameters()))
    assert inner.state[model[1].weight]["step"].item() == steps
    assert inner.state[model[2].weight]["step"].item() == steps + 1


@pytest.mark.parametrize("crossing", [True, False])
def test_a_member_that_only_another_worker_uses_has_its_mean(
    make_stepper: Make, monkeypatch: pytest.MonkeyPatch, crossing: bool
) -> None:
    begin = FakePending.begin

    def with_another(pending: FakePending) -> None:
        begin(pending)
        _, recv = pending.memory
        if recv.dtype == torch.int32:
            recv[4:] += 1  # the counts of the tally
        else:
            recv += 1

    monkeypatch.setattr(FakePending, "begin", with_another)
    model = row(2)
    inner = torch.optim.SGD(model.parameters(), 1.0)
    stepper = make_stepper(model, inner, crossing=crossing)
    for _ in range(2):
        before = peeked(model.parameters())
        model[0](torch.ones(1, 3)).sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
        stepper.synchronize()
        changes = [old - new for old, new in zip(before, peeked(model.parameters()))]
        assert [change.mean().round().item() for change in changes] == [2, 2, 1, 1]


def test_the_first_use_of_a_weight_updates_its_bundle_in_one_call(
    job: FakeJob, make_stepper: Make
) -> None:
    class Counting(torch.optim.SGD):
        """Counts the parameters of each step."""

        def step(self, closure: object = None) -> None:
            counts.append(sum(len(group["params"]) for group in self.param_groups))
            super().step()

    counts: List[int] = []
    model = nn.Sequential(*row(3), nn.Linear(3, 1000))
    stepper = make_stepper(model, Counting(model.parameters(), 0.5))
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    counts.clear()  # the first step tries the optimizer
    job.session.held = ["3.weight"]
    states = lambda: [slot.state for slot in stepper.gradients.slots]  # noqa: E731
    assert states() == [ARMED] * 8
    model[1](torch.ones(1, 3))
    assert states() == [IDLE] * 6 + [ARMED, IDLE]  # the last bias is a small one
    assert counts == [7]
    with pytest.raises(Held):
        model[3](torch.ones(1, 3))


def test_a_bundle_that_may_have_an_unused_member_is_not_updated_along(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.Sequential(nn.Linear(3, 1000, bias=False), nn.Linear(1000, 3), nn.Linear(3, 3))
    stepper = make_stepper(model)
    for _ in range(2):  # the tally of the first round is waited for
        stepper.synchronize()
        model[1](model[0](torch.ones(1, 3))).sum().backward()
        stepper.step(None)
    job.session.arrived, job.session.held = ["bundle of 1.bias", "1.weight"], [TALLY]
    model[0](torch.ones(1, 3))  # does not wait for the tally
    job.session.held = []
    stepper.synchronize()


@pytest.mark.parametrize("crossing", [True, False])
def test_a_round_that_nothing_wants_leaves_its_memory(
    job: FakeJob, make_stepper: Make, crossing: bool
) -> None:
    model, alone = row(), row()
    stepper = make_stepper(model, crossing=crossing)
    inner = torch.optim.SGD(alone.parameters(), 0.5)
    model[0](torch.ones(1, 3)).sum().backward()  # a part of the bundle
    assert job.session.rounds == []
    stepper.zero_grad(True)
    assert job.session.sent() == ["bundle of 0.weight", TALLY]  # other workers may have sent it
    left = job.session.rounds[0].memory
    assert len(stepper.gradients.unfinished()) == 1  # the tally of the first round is over
    for _ in range(2):
        for each in (model, alone):
            each(torch.ones(1, 3)).sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
        inner.step()
        inner.zero_grad()
    if crossing:
        assert len(stepper.gradients.unfinished()) == 3  # that round, one of all members, a tally
    stepper.synchronize()
    for pending in job.session.rounds[2:]:
        for memory in pending.memory:
            assert memory.data_ptr() not in [each.data_ptr() for each in left]
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_a_step_that_was_left_out_leaves_nothing_behind(make_stepper: Make) -> None:
    model, alone = row(), row()
    stepper = make_stepper(model, crossing=False)
    inner = torch.optim.SGD(alone.parameters(), 0.5)
    for step in range(4):
        for each in (model, alone):
            each(torch.ones(1, 3) * step).sum().backward()
        stepper.before_groups()  # GradScaler finds an overflow, and does not step
        if step % 2:
            stepper.step(None)
            inner.step()
        stepper.zero_grad(True)
        inner.zero_grad()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_new_parameters_have_bundles_of_their_own(job: FakeJob, make_stepper: Make) -> None:
    model, alone = row(), row()
    for each in (model, alone):
        for param in each[2:].parameters():
            param.requires_grad_(False)
    stepper = make_stepper(model)
    inner = torch.optim.SGD(alone.parameters(), 0.5)
    for step in range(3):
        for each in (model, alone):
            each(torch.ones(1, 3)).sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
        inner.step()
        inner.zero_grad()
        if step == 0:
            for each in (model, alone):
                each.requires_grad_(True)
            stepper.refresh(None)
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)
    names = set(job.session.sent())
    assert {"bundle of 0.weight", "bundle of 2.weight"} < names
    assert len(names) == 4  # and two tallies


def test_timelines_have_a_bundle_where_forward_uses_its_first_member(
    job: FakeJob, make_stepper: Make
) -> None:
    model = nn.ModuleDict({"head": nn.Linear(50, 50), "body": nn.Linear(50, 50)})
    stepper = make_stepper(model)
    told = len(job.session.shown)
    model["head"](model["body"](torch.ones(1, 50))).sum().backward()
    stepper.step(None)
    assert job.session.shown[told:] == ["body.weight", "bundle of head.bias", "head.weight"]
    urgency = {job.session.names[r.key]: r.call.priority for r in job.session.rounds}
    assert urgency["bundle of head.bias"] == -1  # that of body.bias


def test_errors_name_the_parameter(job: FakeJob, make_stepper: Make) -> None:
    model = row(2)
    stepper = make_stepper(model, crossing=False, find_unused=False)
    model(torch.ones(1, 3)).sum().backward()
    model[1].bias.grad.mul_(2)
    with pytest.raises(UsageError, match="1.bias: its gradient was changed after backward"):
        stepper.step(None)
    stepper.zero_grad(True)
    model[0](torch.ones(1, 3)).sum().backward()
    with pytest.raises(UsageError, match="1.weight: backward made no gradient"):
        stepper.step(None)
    stepper.close()
    stepper = make_stepper(model, crossing=False)
    model[0](torch.ones(1, 3)).sum().backward()
    model[0].bias.grad.mul_(2)  # before its bundle is sent
    with pytest.raises(UsageError, match="0.bias: its gradient was changed after backward"):
        stepper.step(None)
    stepper.zero_grad(True)
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(UsageError) as raised:
        model(torch.ones(1, 3)).sum().backward()
    assert str(raised.value) == snapshot(
        "1.bias: backward made two gradients before step(); call step() after each backward, or "
        "pass backward_passes_per_step=2 to accumulate; with activation checkpointing of shared "
        "weights pass use_reentrant=False to checkpoint"
    )


def test_sparse_gradients_join_a_bundle_in_dense_form(make_stepper: Make) -> None:
    def embedding() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 3))

    model, alone = embedding(), embedding()
    stepper = make_stepper(model, sparse_as_dense=True)
    inner = torch.optim.SGD(alone.parameters(), 0.5)
    at = torch.tensor([1, 3])
    for _ in range(2):
        model(at).sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
        alone(at).sum().backward()
        inner.step()
        inner.zero_grad()
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_gradients_in_memory_of_weights_or_of_one_element_leave_it_alone(
    make_stepper: Make,
) -> None:
    model = row(1)
    stepper = make_stepper(model, crossing=False)
    before = model[0].weight.detach().clone()
    model[0].weight.grad = model[0].weight.detach()
    model[0].bias.grad = torch.ones(1).expand(3)
    stepper.synchronize(always=True)
    assert torch.equal(model[0].weight.grad, before)
    assert torch.equal(model[0].bias.grad, torch.ones(3))
    model[0].weight.grad.zero_()
    assert torch.equal(model[0].weight, before)


def test_gradients_stay_the_same_objects_and_memory(make_stepper: Make) -> None:
    model = row(2)
    stepper = make_stepper(model, crossing=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the graph refers to the gradients
        model(torch.ones(1, 3)).sum().backward(create_graph=True)
    kept = [(param.grad, param.grad._version) for param in model.parameters()]
    stepper.synchronize()
    for param, (grad, version) in zip(model.parameters(), kept):
        assert param.grad is grad
        assert grad._version == version
        param.grad = None


def test_a_failed_callback_leaves_no_member_behind(make_stepper: Make) -> None:
    def on_gradient(param: nn.Parameter) -> None:
        if param is model[1].weight and fails:
            raise ValueError("no")

    fails = True
    model = row(2)
    stepper = make_stepper(model, on_gradient=on_gradient)
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    with pytest.raises(ValueError, match="no"):
        model(torch.ones(1, 3))
    fails = False
    model(torch.ones(1, 3)).sum().backward()
    assert {slot.state for slot in stepper.gradients.slots} == {PUSHED}
    stepper.step(None)
    stepper.synchronize()


def test_a_copied_model_trains_alone(make_stepper: Make) -> None:
    model = row(2)
    stepper = make_stepper(model)
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    copied = copy.deepcopy(model)
    for one, other in zip(copied.parameters(), model.parameters()):
        assert torch.equal(one, other)


def test_parameters_of_devices_travel_singly(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_the_other_worker(value: List[Any]) -> List[Any]:
        return [] if value else [value, ["p1"]]  # strides are alike

    monkeypatch.setattr(job.objects, "gather_unequal", with_the_other_worker)
    members = [(f"p{at}", nn.Parameter(torch.ones(2)), 0) for at in range(4)]
    gradients = Gradients(job, members, GradientOptions())  # type: ignore[arg-type]
    assert [slot.bundle is None for slot in gradients.slots] == [False, True, False, False]
    gradients.close()
