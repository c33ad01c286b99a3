"""Uses of weights whose update waits: each is the plain optimizer's weight, seen or told so."""

import copy
import io
import pickle
import threading
import warnings
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, Iterator, List

import pytest
import torch
import torch.nn.functional as F
import torch.optim.optimizer as of_optimizers
from fake_job import FakeJob, peeked
from torch import nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, parametrize, prune
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.slot import ARMED, IDLE
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]
Use = Callable[[nn.Sequential], Any]
ONES = torch.ones(2, 4)


@torch.library.custom_op("bytescheduler_test::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> Any:  # noqa: ANN401
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        return grads[0] @ weight.T, x.T @ grads[0]


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


class Pair:
    """A model whose updates wait, and its twin with the plain optimizer."""

    def __init__(self, make: Make, has_model: bool, make_model: Callable[[], Any] = layers) -> None:
        self.model, self.alone = make_model(), make_model()
        inner = torch.optim.AdamW(self.model.parameters(), 0.1)
        named = dict(self.model.named_parameters())
        if has_model:
            self.stepper = make(self.model, inner)
        else:
            self.stepper = make(None, inner, named_parameters=named.items())
        self.plain = torch.optim.AdamW(self.alone.parameters(), 0.1)
        self.has_model = has_model

    def step(self, x: torch.Tensor = ONES) -> None:
        """Leave updates waiting."""
        self.step_by(lambda model: model(x))

    def step_by(self, forward: Callable[[Any], torch.Tensor]) -> None:
        self.stepper.zero_grad(True)
        forward(self.model).square().sum().backward()
        self.stepper.step(None)
        self.plain.zero_grad()
        forward(self.alone).square().sum().backward()
        self.plain.step()

    def check(self) -> None:
        for one, other in zip(self.model.parameters(), self.alone.parameters()):
            assert type(one) is type(other)
            assert torch.equal(one, other)

    @property
    def waiting(self) -> int:
        return sum(slot.state == ARMED for slot in self.stepper.gradients.slots)


@pytest.fixture(params=[True, False], ids=["model", "no model"])
def has_model(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def pair(make_stepper: Make, has_model: bool) -> Iterator[Pair]:
    made = Pair(make_stepper, has_model)
    for _ in range(1 if has_model else 2):  # without a model the first step waits
        made.step()
    assert made.waiting == 4
    assert made.stepper.crosses
    yield made
    made.stepper.close()


def in_place(change: Callable[[torch.Tensor], object]) -> Use:
    def use(model: nn.Sequential) -> None:
        with torch.no_grad():
            change(model[0].weight)

    return use


def averaged(model: nn.Module) -> Any:  # noqa: ANN401
    average = AveragedModel(model)
    average.update_parameters(model)
    return list(average.parameters())


def saved(value: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def shared(param: torch.Tensor) -> object:
    return pickle.loads(ForkingPickler.dumps(param))


def pruned(model: nn.Sequential) -> object:
    prune.l1_unstructured(model[0], "weight", 0.5)
    return [model[0].weight, model[0].weight_mask]


def parametrized(model: nn.Sequential) -> object:
    parametrize.register_parametrization(model[0], "weight", nn.Tanh())
    return model[0].weight


def fused(param: torch.Tensor) -> None:
    with torch.no_grad():
        numbers = {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0}
        options = {"nesterov": False, "maximize": False, "is_first_step": True}
        torch._fused_sgd_([param], [torch.ones_like(param)], [], **numbers, **options)


def functional(model: nn.Sequential) -> object:
    return torch.func.functional_call(model, dict(model.named_parameters()), ONES)


def jvp(model: nn.Sequential) -> object:
    weight = model[0].weight
    return torch.func.jvp(lambda w: F.linear(ONES, w), (weight,), (torch.ones_like(weight),))


def inside(context: Callable[[], Any], use: Use) -> Use:
    def used(model: nn.Sequential) -> object:
        with context():
            return use(model)

    return used


USES: Dict[str, Use] = {
    "linear": lambda m: F.linear(ONES, m[0].weight, m[0].bias),
    "norm": lambda m: m[0].weight.norm(),
    "vector_norm": lambda m: torch.linalg.vector_norm(m[0].weight),
    "clone": lambda m: m[0].weight.clone(),
    "detach": lambda m: m[0].weight.detach(),
    "data": lambda m: m[0].weight.data,
    "transposed": lambda m: m[0].weight.T,
    "data_ptr": lambda m: m[0].weight.data_ptr() * 0,
    "storage": lambda m: list(m[0].weight.untyped_storage()),
    "item": lambda m: m[0].weight[0, 0].item(),
    "tolist": lambda m: m[0].weight.tolist(),
    "numpy": lambda m: m[0].weight.detach().numpy().tolist(),
    "array": lambda m: m[0].weight.data.__array__().tolist(),
    "dlpack": lambda m: torch.from_dlpack(m[0].weight.detach()),
    "repr": lambda m: repr(m[0].weight),
    "len": lambda m: [row.sum() for row in m[0].weight],
    "comparison": lambda m: m[0].weight == m[0].weight,
    "bool": lambda m: bool(m[0].weight[0, 0] > 0),
    "requires_grad_": lambda m: m[0].weight.requires_grad_(True),
    "clamp_": in_place(lambda w: w.clamp_(-0.1, 0.1)),
    "data.clamp_": lambda m: m[0].weight.data.clamp_(-0.1, 0.1),
    "data = ": lambda m: setattr(m[0].weight, "data", m[0].weight.data * 2),
    "data = new": lambda m: setattr(m[0].weight, "data", torch.ones(4, 4)),
    "data[0] = ": lambda m: m[0].weight.data.__setitem__(0, 0.0),
    "[0] = ": in_place(lambda w: w.__setitem__(0, 0.0)),
    "init": lambda m: nn.init.xavier_uniform_(m[0].weight, generator=torch.Generator()),
    "set_": in_place(lambda w: w.set_(torch.ones(4, 4))),  # type: ignore[arg-type]
    "add_ of itself": in_place(lambda w: w.add_(w)),
    "foreach": lambda m: torch._foreach_norm(list(m.parameters())),
    "foreach lerp": lambda m: torch._foreach_lerp([torch.zeros(4, 4)], [m[0].weight], 0.1),
    "foreach change": in_place(lambda w: torch._foreach_mul_([w], 0.5)),
    "fused": in_place(fused),
    "to vector": lambda m: parameters_to_vector(m.parameters()),
    "clip": lambda m: clip_grad_norm_([copy.copy(p.detach()) for p in m.parameters()], 1.0),
    "stacked": lambda m: torch.stack([m[0].weight, m[2].weight]),
    "nested": lambda m: torch.cat(tuple(p.flatten() for p in m.parameters())),
    "by name": lambda m: torch.add(input=torch.ones(4, 4), other=m[0].weight),
    "out": inside(torch.no_grad, lambda m: torch.add(m[0].weight, 1, out=torch.empty(4, 4))),
    "functional_call": functional,
    "jvp": jvp,
    "vmap": lambda m: torch.vmap(m)(torch.ones(3, 2, 4)),
    "hessian": lambda m: torch.func.hessian(lambda x: F.linear(x, m[0].weight).sum())(ONES),
    "module": lambda m: m(ONES),
    "layer": lambda m: m[2](ONES),
    "forward": lambda m: m[2].forward(ONES),
    "no_grad": inside(torch.no_grad, lambda m: m(ONES)),
    "inference_mode": inside(torch.inference_mode, lambda m: m(ONES).clone()),
    "autocast": inside(lambda: torch.autocast("cpu", torch.bfloat16), lambda m: m(ONES)),
    "checkpoint": lambda m: checkpoint(m, ONES, use_reentrant=False),
    "custom op": lambda m: doubled(m[0].weight),
    "torch.ops": lambda m: torch.ops.bytescheduler_test.doubled(m[0].weight),
    "aten": lambda m: torch.ops.aten.mul(m[0].weight, 2),
    "autograd function": lambda m: Product.apply(ONES, m[0].weight),
    "autograd.grad": lambda m: torch.autograd.grad(m(ONES).sum(), list(m.parameters())),
    "state_dict": lambda m: m.state_dict(),
    "state_dict of vars": lambda m: [p * 1 for p in m.state_dict(keep_vars=True).values()],
    "load_state_dict": lambda m: m.load_state_dict(layers().state_dict()) and None,
    "deepcopy": lambda m: copy.deepcopy(m[0].weight),
    "deepcopy of all": lambda m: list(copy.deepcopy(m).parameters()),
    "copy": lambda m: copy.copy(m[0].weight),
    "pickle": lambda m: pickle.loads(pickle.dumps(m[0].weight)),
    "pickle of all": lambda m: list(pickle.loads(pickle.dumps(m)).parameters()),
    "save": lambda m: saved(m[0].weight),
    "save of a copy": lambda m: list(saved(copy.copy(m)).parameters()),  # type: ignore[attr-defined]
    "another process": lambda m: shared(m[0].weight),
    "as_subclass": lambda m: m[0].weight.as_subclass(torch.Tensor),  # type: ignore[arg-type]
    "parameter of data": lambda m: nn.Parameter(m[0].weight.data),
    "half": lambda m: list(copy.deepcopy(m).half().parameters()),
    "to": lambda m: m[0].weight.to(torch.float64),
    "share_memory": lambda m: m[0].weight.share_memory_(),
    "average": averaged,
    "prune": pruned,
    "parametrize": parametrized,
    "traced": lambda m: torch.jit.trace(m, ONES)(ONES),
    "fake": inside(torch._subclasses.fake_tensor.FakeTensorMode, lambda m: m[0].weight.shape),
}


def plainly(value: object) -> object:
    """Return a value as texts and lists that are equal if each bit is."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.requires_grad, value.detach().reshape(-1).tolist()]
    if isinstance(value, dict):
        return {key: plainly(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plainly(each) for each in value]
    return value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", USES)
def test_a_use_is_of_the_plain_weight(pair: Pair, name: str) -> None:
    use = USES[name]
    assert plainly(use(pair.model)) == plainly(use(pair.alone))
    if name not in ("prune", "parametrize"):
        assert pair.waiting < 4 or name == "fake"
        for _ in range(2):
            pair.step(torch.ones(2, 4))
    pair.stepper.synchronize()
    pair.check()
    assert pair.stepper.crosses


NO_USES: Dict[str, Use] = {
    "shape": lambda m: m[0].weight.shape,
    "dtype": lambda m: m[0].weight.dtype,
    "device": lambda m: m[0].weight.device,
    "layout": lambda m: m[0].weight.layout,
    "requires_grad": lambda m: m[0].weight.requires_grad,
    "is_leaf": lambda m: m[0].weight.is_leaf,
    "grad_fn": lambda m: m[0].weight.grad_fn,
    "size": lambda m: m[0].weight.size(),
    "size(0)": lambda m: m[0].weight.size(0),
    "numel": lambda m: sum(p.numel() for p in m.parameters()),
    "torch.numel": lambda m: torch.numel(m[0].weight),
    "stride": lambda m: m[0].weight.stride(),
    "dim": lambda m: m[0].weight.dim(),
    "ndim": lambda m: m[0].weight.ndim,
    "len": lambda m: len(m[0].weight),
    "kinds": lambda m: (m[0].weight.is_floating_point(), torch.is_complex(m[0].weight)),
    "contiguous": lambda m: m[0].weight.is_contiguous(),
    "hash": lambda m: hash(m[0].weight) * 0,
    "is": lambda m: m[0].weight is m[0].weight,
    "isinstance": lambda m: isinstance(m[0].weight, nn.Parameter),
    "attribute": lambda m: setattr(m[0].weight, "nickname", "weight"),
    "zero_grad": lambda m: m.zero_grad(),
    "zero_grad of zeros": lambda m: m.zero_grad(set_to_none=False),
    "grad": lambda m: [m[0].weight.grad is None for _ in range(2)] * 0,
    "grad = None": lambda m: [setattr(p, "grad", None) for p in m.parameters()],
    "del grad": lambda m: m[0].weight.__delattr__("grad"),
    "named": lambda m: [name for name, _ in m.named_parameters()],
    "train": lambda m: m.train() and None,
    "module to": lambda m: next(m.parameters()).device,
}


@pytest.mark.parametrize("name", NO_USES)
def test_a_use_that_reads_no_element_makes_no_update(pair: Pair, name: str) -> None:
    use = NO_USES[name]
    assert plainly(use(pair.model)) == plainly(use(pair.alone))
    assert pair.waiting == 4
    pair.stepper.synchronize()
    pair.check()


@pytest.mark.usefixtures("singly")
def test_the_first_use_of_a_weight_leaves_other_weights_waiting(job: FakeJob, pair: Pair) -> None:
    pair.model[0].weight.norm()
    states = [slot.state for slot in pair.stepper.gradients.slots]
    assert sorted(states) == [IDLE, ARMED, ARMED, ARMED]


MODULES: Dict[str, Any] = {
    "lstm": (lambda: nn.LSTM(4, 4), lambda m, x: m(x)[0]),
    "attention": (lambda: nn.MultiheadAttention(4, 2), lambda m, x: m(x, x, x)[0]),
    "norm": (lambda: nn.BatchNorm1d(4), lambda m, x: m(x.flatten(0, 1))),
    "convolution": (lambda: nn.Conv1d(3, 3, 1), lambda m, x: m(x)),
    "embedding": (lambda: nn.Embedding(9, 4), lambda m, x: m(x.long().abs() % 9)),
    "bag": (lambda: nn.EmbeddingBag(9, 4), lambda m, x: m(x.long().abs().flatten(1) % 9)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(4, 1, 8, 0.0, batch_first=True),
        lambda m, x: m(x),
    ),
    "list": (
        lambda: nn.ParameterList([nn.Parameter(torch.eye(4))]),
        lambda m, x: x @ m[0],
    ),
}


@pytest.mark.parametrize("kind", MODULES)
def test_modules_use_the_plain_weights(make_stepper: Make, has_model: bool, kind: str) -> None:
    def make() -> Any:  # noqa: ANN401
        torch.manual_seed(1)
        return MODULES[kind][0]()

    pair = Pair(make_stepper, has_model, make)
    forward = MODULES[kind][1]
    for step in range(4):
        x = torch.arange(24.0).view(2, 3, 4) * 0.1 + step
        pair.step_by(lambda model, x=x: forward(model, x))
        for each in (pair.model, pair.alone):
            each.train(False)
        with torch.no_grad():
            assert torch.allclose(forward(pair.model, x), forward(pair.alone, x), atol=1e-6)
        for each in (pair.model, pair.alone):
            each.train(True)
    pair.stepper.synchronize()
    pair.check()
    assert pair.stepper.crosses


def test_threads_wait_for_the_update_of_another_one(job: FakeJob, pair: Pair) -> None:
    began, go_on = threading.Event(), threading.Event()
    wait = job.session.wait

    def slow(pending: Any) -> None:  # noqa: ANN401
        began.set()
        go_on.wait(5)
        wait(pending)

    job.session.wait = slow  # type: ignore[method-assign]
    seen: List[float] = []
    threads = [
        threading.Thread(target=lambda: seen.append(pair.model[0].weight.sum().item()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    began.wait(5)
    go_on.set()
    for thread in threads:
        thread.join()
    assert seen == [pair.alone[0].weight.sum().item()] * 4


def test_a_subclass_of_tensors_as_another_argument(pair: Pair) -> None:
    class Mine(torch.Tensor):
        pass

    x = ONES.as_subclass(Mine)  # type: ignore[arg-type]
    assert type(F.linear(x, pair.model[0].weight)) is Mine
    assert torch.equal(F.linear(x, pair.model[0].weight), F.linear(x, pair.alone[0].weight))


def test_parameters_of_a_class_of_the_users(make_stepper: Make, has_model: bool) -> None:
    class Named(nn.Parameter):
        pass

    def make() -> nn.Module:
        model = layers()
        model[0].weight = Named(model[0].weight.detach())
        return model

    pair = Pair(make_stepper, has_model, make)
    for _ in range(3):
        pair.step()
    assert isinstance(pair.model[0].weight, Named)
    pair.stepper.synchronize()
    pair.check()


class Looking(torch.Tensor):
    """Sees its uses itself."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_weight_that_sees_its_own_uses_keeps_the_barrier(
    make_stepper: Make, has_model: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def make() -> nn.Module:
        model = layers()
        model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Looking))  # type: ignore[arg-type]
        return model

    pair = Pair(make_stepper, has_model, make)
    assert not pair.stepper.crosses
    assert "0.weight has the class Looking, which hides its uses" in capfd.readouterr().err
    for _ in range(3):
        pair.step()
    pair.check()


def unseen(model: Any) -> torch.Tensor:  # noqa: ANN401
    """Use a weight as an extension in C++ does, which gets a tensor and no class."""
    with torch._C.DisableTorchFunctionSubclass():
        return F.linear(ONES, model[2].weight)


def test_a_use_that_is_not_seen_in_the_first_pass_keeps_the_barrier(
    make_stepper: Make, has_model: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(make_stepper, has_model)
    for each in (pair.model, pair.alone):  # none of these is of a forward pass
        copy.deepcopy(each)
        each.state_dict()
        pickle.dumps(each[2].weight)
        with torch.no_grad():
            each[2].weight.mul_(0.5)
            torch._foreach_mul_([each[2].weight], 0.5)
        each[2].weight.data = each[2].weight.data * 2
    for _ in range(4):
        pair.step_by(lambda model: model[0](ONES) + unseen(model))
    assert not pair.stepper.crosses
    pair.check()
    assert capfd.readouterr().err.count("2.weight is used by code that Python does not see") == 1


def transposed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight.t()


def in_cpp(model: Any) -> torch.Tensor:  # noqa: ANN401
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = torch.jit.script(transposed)
    return function(ONES, model[2].weight)  # type: ignore[no-any-return]


@pytest.mark.parametrize("hidden", [unseen, in_cpp])
def test_a_weight_outside_of_its_modules_calls_waits_in_each_step(
    make_stepper: Make,
    has_model: bool,
    hidden: Callable[[Any], torch.Tensor],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """C++ may use it before Python does; modules that are called still cross."""
    pair = Pair(make_stepper, has_model)
    for _ in range(4):
        pair.step_by(lambda model: model[0](ONES) + hidden(model) + model[2].weight.square().sum())
    assert pair.stepper.crosses
    pair.check()
    assert capfd.readouterr().err.count("2.weight is used in no call of a module that has it") == 1
    assert [slot.name for slot in pair.stepper._updates.at_once] == ["2.weight"]


def test_attention_crosses_though_it_calls_no_module_for_its_last_weights(
    make_stepper: Make, has_model: bool
) -> None:
    def make() -> nn.Module:
        torch.manual_seed(1)
        return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    pair = Pair(make_stepper, has_model, make)
    for _ in range(4):
        pair.step_by(lambda model: model(ONES[None]))
    assert pair.stepper.crosses
    assert not pair.stepper._updates.at_once
    pair.stepper.synchronize()
    pair.check()


def test_a_compiled_function_reads_gradients_that_wait(make_stepper: Make) -> None:
    pair = Pair(make_stepper, True)

    @torch.compile(backend="eager")
    def norm(params: Any) -> torch.Tensor:  # noqa: ANN401
        return sum(param.grad.pow(2).sum() for param in params)  # type: ignore[return-value]

    for _ in range(4):
        pair.step()
        ours, plain = (norm(list(model.parameters())) for model in (pair.model, pair.alone))
        assert torch.equal(ours, plain)
    pair.check()


def test_scripting_a_guarded_model_is_refused_with_the_cure(make_stepper: Make) -> None:
    pair = Pair(make_stepper, True)
    pair.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UsageError, match=r"call optimizer\.close\(\) first"):
            torch.jit.script(pair.model)


def scripted(model: nn.Module) -> Any:  # noqa: ANN401
    return torch.jit.script(model)


def traced(model: nn.Module) -> Any:  # noqa: ANN401
    return torch.jit.trace(model, ONES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [scripted, traced])
@pytest.mark.parametrize("when", ["before", "after"])
def test_modules_that_C_runs(make_stepper: Make, change: Callable[..., Any], when: str) -> None:
    def make() -> Any:  # noqa: ANN401
        return change(layers()) if when == "before" else layers()

    pair = Pair(make_stepper, False, make)
    if when == "after":
        pair.model, pair.alone = change(pair.model), change(pair.alone)
    for _ in range(4):  # the compiler's own results differ in their last bit from run to run
        pair.step()
        assert torch.allclose(pair.model(ONES), pair.alone(ONES), atol=1e-5)
    for one, other in zip(pair.model.parameters(), pair.alone.parameters()):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [scripted, traced])
def test_evaluation_by_a_module_that_C_runs(make_stepper: Make, change: Callable[..., Any]) -> None:
    pair = Pair(make_stepper, False)
    twins = [change(model) for model in (pair.model, pair.alone)]
    for step in range(4):
        pair.step()
        assert pair.waiting == (4 if step else 0)
        with torch.no_grad():
            assert torch.equal(twins[0](ONES), twins[1](ONES))
    assert pair.stepper.crosses


def check_barrier_of_compiled_code(pair: "Pair", full: bool) -> None:
    """Compile both models of a pair, and step four times, after which each step waits for sums."""
    calls = [
        torch.compile(model, backend="aot_eager", fullgraph=full)
        for model in (pair.model, pair.alone)
    ]
    for _ in range(4):
        pair.step_by(lambda model: calls[model is pair.alone](ONES))
    pair.check()
    assert not pair.stepper.crosses


@pytest.mark.parametrize("full", [True, False])
def test_compiled_code_without_a_model_keeps_the_barrier(
    make_stepper: Make, capfd: pytest.CaptureFixture[str], full: bool
) -> None:
    torch._dynamo.reset()
    pair = Pair(make_stepper, False)
    check_barrier_of_compiled_code(pair, full)
    assert capfd.readouterr().err.count("is used by compiled code, which needs model=model") == 1


@pytest.mark.filterwarnings("ignore:.*global hooks on modules")
def test_code_that_is_compiled_later_keeps_the_barrier_from_then_on(
    make_stepper: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    torch._dynamo.reset()
    pair = Pair(make_stepper, False)
    for _ in range(2):
        pair.step()
    assert pair.waiting == 4
    check_barrier_of_compiled_code(pair, True)
    assert capfd.readouterr().err.count("code is compiled that uses weights") == 1


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # where a graph breaks
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_model_crosses(make_stepper: Make, when: str) -> None:
    torch._dynamo.reset()
    graphs: List[object] = []

    def backend(graph: Any, _: object) -> Any:  # noqa: ANN401
        graphs.append(graph)
        return graph.forward

    model, alone = layers(), layers()
    call = torch.compile(model, backend=backend)
    if when == "before":
        call(ONES)
    stepper = make_stepper(model, torch.optim.Adam(model.parameters(), 0.1))
    plain = torch.optim.Adam(alone.parameters(), 0.1)
    counts = []
    for _ in range(5):
        call(ONES).square().sum().backward()
        stepper.step(None)
        stepper.zero_grad(True)
        alone(ONES).square().sum().backward()
        plain.step()
        plain.zero_grad()
        counts.append(len(graphs))
    assert counts[1] == counts[-1]
    assert stepper.crosses
    stepper.synchronize()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.equal(one, other)


def test_an_optimizer_that_must_cross_and_cannot_is_an_error(make_stepper: Make) -> None:
    model = layers()
    stepper = make_stepper(None, torch.optim.SGD(model.parameters(), 0.1), crossing=True)
    model(ONES).sum().backward()
    stepper.step(None)
    stepper.zero_grad(False)  # what has a gradient of zeros was not used
    unseen(model).sum().backward()
    with pytest.raises(UsageError, match="parameter 2 is used by code that Python does not see"):
        stepper.step(None)


def test_a_closed_or_dropped_optimizer_leaves_plain_weights(
    make_stepper: Make, has_model: bool
) -> None:
    for steps in range(3):
        pair = Pair(make_stepper, has_model)
        for _ in range(steps):
            pair.step()
        pair.stepper.close()
        pair.check()
        assert all("_bytescheduler_user" not in vars(p) for p in pair.model.parameters())


def test_the_class_is_known_where_pytorch_asks_for_the_very_class(pair: Pair) -> None:
    kinds = {type(param) for param in pair.model.parameters()}
    assert kinds == {type(pair.model[0].weight)} != {nn.Parameter}
    assert kinds < set(of_optimizers._foreach_supported_types)


def test_weights_are_old_until_their_use(pair: Pair) -> None:
    """The other tests can fail: what reads a weight unseen gets the old one."""
    old = peeked(pair.model.parameters())
    assert not any(map(torch.equal, old, pair.alone.parameters()))
