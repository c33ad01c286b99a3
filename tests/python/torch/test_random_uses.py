"""Random scripts that use weights between steps: all they see is as without a job.

A script is drawn from a seed.  It runs with the plain optimizer, and in a job of two workers where
both send the same.  The weights are equal in every bit, and so is all that the script reads.
"""

import copy
import io
import os
import pickle
import random
import threading
from typing import Any, Callable, Dict, Iterable, List, Tuple

import pytest
import torch
import torch.nn.functional as F
from fake_job import FakeJob
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing import updates, waiting, waiting_gradients
from bytescheduler.torch._gradients import bundle
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.stepper import Stepper

# `make nightly-torch` draws more.
SEEDS = int(os.environ.get("BS_TORCH_SEEDS", "240"))
STEPS, WIDTH = 4, 3
OPTIMIZERS: List[Callable[[Any], Any]] = [
    lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=0.01),
    lambda params: torch.optim.AdamW(params, 0.02),
    lambda params: torch.optim.AdamW(params, 0.02, foreach=True),
    lambda params: torch.optim.Adam(params, 0.02, fused=True),
    lambda params: torch.optim.RMSprop(params, 0.01, momentum=0.5),
]


class Model(nn.Module):
    """Tied weights, a weight that another module uses, attention, a layer that is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 1)
        self.sometimes = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)
        self.last.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.way = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x)) * self.scale
        if self.way != 1:
            x = x + self.attention(x, x, x)[0]
        if self.way == 2:
            x = x + F.linear(x, self.sometimes.weight)
        if self.way == 3:
            x = self.sometimes(x)
        return self.last(x)


class Script:
    """What runs between the steps, with the plain optimizer or ours."""

    def __init__(
        self,
        seed: int,
        wrap: Callable[[Any, Any], Any],
        *,
        mean: int = 1,
        drops: bool = False,
        compiled: bool = False,
    ) -> None:
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.model = Model()
        self.mean = mean  # over all workers, of one times the loss
        self.ways = 6 if drops else 8  # of `zero_grad`
        self.seen: List[Any] = []
        self.twins: List[nn.Module] = []
        self.grads: List[torch.Tensor] = []
        inner = self.draw.choice(OPTIMIZERS)(self.model.parameters())
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
        self.optimizer = wrap(self.model, inner)
        self.call: Any = torch.compile(self.model, backend="eager") if compiled else self.model

    def run(self) -> List[Any]:
        for step in range(STEPS):
            self.uses(self.draw.randrange(3))
            self.model.way = self.draw.randrange(4)
            self.zero_grad()
            x = torch.arange(2.0 * WIDTH).view(2, 1, WIDTH) * 0.1 + step
            (self.call(x).square().mean() * self.mean).backward()
            self.optimizer.step(None)
        self.uses(3)
        self.seen += kept(self.grads)
        self.seen += [param.detach().clone() for param in self.model.parameters()]
        return self.seen

    def uses(self, count: int) -> None:
        for _ in range(count):
            name = self.draw.choice(list(USES))
            params = list(self.model.parameters())
            param = params[self.draw.randrange(len(params))]
            self.seen.append((name, kept(USES[name](self, param))))

    def zero_grad(self) -> None:
        way = self.draw.randrange(self.ways)
        if way == 0:
            self.optimizer.zero_grad(True)
        elif way in (3, 4):
            (self.optimizer if way == 3 else self.model).zero_grad(set_to_none=False)
        elif way == 5:
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            torch._foreach_zero_(grads or [torch.ones(1)])
        elif way == 1:
            self.model.zero_grad()
        elif way == 2:
            for param in self.model.parameters():
                param.grad = None


def kept(value: Any) -> Any:  # noqa: ANN401
    """Return a copy that later changes leave alone."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [kept(each) for each in value]
    return value


def changed(change: Callable[[torch.Tensor], object]) -> Callable[[Script, torch.Tensor], None]:
    def use(script: Script, param: torch.Tensor) -> None:
        with torch.no_grad():
            change(param)

    return use


def evaluated(script: Script, param: torch.Tensor) -> torch.Tensor:
    with script.draw.choice([torch.no_grad, torch.inference_mode, torch.enable_grad])():
        return script.call(torch.ones(2, 1, WIDTH)).clone()


def in_a_thread(script: Script, param: torch.Tensor) -> List[torch.Tensor]:
    """Use a weight in three threads at once."""
    sums: List[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: sums.append(param.sum())) for _ in range(2)]
    for thread in threads:
        thread.start()
    sums.append(param.sum())
    for thread in threads:
        thread.join()
    return sums


def averaged(script: Script, param: torch.Tensor) -> List[torch.Tensor]:
    script.average.update_parameters(script.model)
    return list(script.average.parameters())


def target(script: Script, param: torch.Tensor) -> List[torch.Tensor]:
    """Move a copy towards the model, as reinforcement learning does."""
    if not script.twins:
        script.twins.append(copy.deepcopy(script.model))
    with torch.no_grad():
        for one, other in zip(script.twins[0].parameters(), script.model.parameters()):
            one.mul_(0.9).add_(other, alpha=0.1)
    return list(script.twins[0].parameters())


def saved(script: Script, param: torch.Tensor) -> List[torch.Tensor]:
    file = io.BytesIO()
    torch.save(script.model.state_dict(), file)
    file.seek(0)
    return list(torch.load(file).values())


def loaded(script: Script, param: torch.Tensor) -> None:
    script.model.load_state_dict({k: v * 0.5 for k, v in script.model.state_dict().items()})


def of_grad(use: Callable[[torch.Tensor], Any]) -> Callable[[Script, torch.Tensor], Any]:
    return lambda script, param: None if param.grad is None else use(param.grad)


def keep_grad(script: Script, param: torch.Tensor) -> None:
    """Look at a gradient when the script is over."""
    if param.grad is not None:
        script.grads.append(param.grad)


USES: Dict[str, Callable[[Script, torch.Tensor], Any]] = {
    "norm": lambda s, p: p.norm(),
    "numbers": lambda s, p: [p.shape, p.numel(), p.dtype, p.device, p.dim(), p.requires_grad],
    "item": lambda s, p: p.flatten()[0].item(),
    "vector": lambda s, p: nn.utils.parameters_to_vector(s.model.parameters()),
    "norms": lambda s, p: torch._foreach_norm(list(s.model.parameters())),
    "data": lambda s, p: p.data,
    "numpy": lambda s, p: p.detach().numpy().tolist(),
    "evaluation": evaluated,
    "thread": in_a_thread,
    "ema": averaged,
    "target": target,
    "copy": lambda s, p: list(copy.deepcopy(s.model).parameters()),
    "copy of one": lambda s, p: copy.deepcopy(p),
    "pickle": lambda s, p: pickle.loads(pickle.dumps(p)),
    "save": saved,
    "load": loaded,
    "state": lambda s, p: list(s.model.state_dict().values()),
    "state of optimizer": lambda s, p: len(s.optimizer.inner_state()),
    "clamp_": changed(lambda p: p.clamp_(-0.4, 0.4)),
    "data.clamp_": lambda s, p: p.data.clamp_(-0.4, 0.4),
    "data = ": lambda s, p: setattr(p, "data", p.data * 0.9),
    "set_": changed(lambda p: p.set_(p.detach() * 0.9)),  # type: ignore[arg-type]
    "[0] = ": changed(lambda p: p.__setitem__(0, 0.0)),
    "mul_ of itself": changed(lambda p: p.mul_(p)),
    "foreach": changed(lambda p: torch._foreach_mul_([p], 0.9)),
    "init": changed(lambda p: nn.init.constant_(p, 0.1)),
    "zero_grad": lambda s, p: s.zero_grad(),
    "grad": lambda s, p: s.model.zero_grad() or p.grad is None,
    "grad norm": of_grad(lambda grad: grad.norm()),
    "grads": lambda s, p: [each.grad for each in s.model.parameters() if each.grad is not None],
    "grad.data": of_grad(lambda grad: grad.data),
    "grad numpy": of_grad(lambda grad: grad.numpy().tolist()),
    "grad shape": of_grad(lambda grad: [grad.shape, grad.dtype, grad.requires_grad]),
    "grad copy": of_grad(copy.deepcopy),
    "grad zero_": of_grad(lambda grad: grad.zero_()),
    "grad = None": lambda s, p: setattr(p, "grad", None),
    "kept grad": keep_grad,
    "functional": lambda s, p: torch.func.functional_call(
        s.model, dict(s.model.named_parameters()), torch.ones(2, 1, WIDTH)
    ),
}


class Plain:
    """The plain optimizer."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401
        self._inner = inner
        self.zero_grad = inner.zero_grad

    def step(self, closure: None) -> None:
        self._inner.step()

    def inner_state(self) -> object:
        return self._inner.state_dict()["state"]


class Ours(Plain):
    """Ours, in a job."""

    def __init__(self, inner: Any, stepper: Stepper) -> None:  # noqa: ANN401
        super().__init__(inner)
        self.stepper = stepper
        self.zero_grad = stepper.zero_grad

    def step(self, closure: None) -> None:
        self.stepper.step(None)

    def inner_state(self) -> object:
        self.stepper.check_settled("state_dict()")
        return super().inner_state()


def run_of(seed: int, has_model: bool, peer: int, **options: bool) -> Tuple[List[Any], int]:
    """Return what a script reads in a job, and how many sums it did not wait for in step()."""
    waited: List[int] = []

    def wrap(model: nn.Module, inner: Any) -> Ours:  # noqa: ANN401
        job: Any = FakeJob()
        job.session.peer = peer
        given = Options(model=model if has_model else None).checked()
        stepper = Stepper(job, inner, given)
        step = stepper.step

        def counted(closure: None) -> None:
            step(closure)
            waited.append(0 if stepper._updates is None else stepper._updates.waiting)
            names = list(job.session.names.values())
            job.session.arrived = names[: (seed + len(waited)) % len(names)]

        stepper.step = counted  # type: ignore[method-assign]
        return Ours(inner, stepper)

    script = Script(seed, wrap, **options)
    try:
        read = script.run()
        script.optimizer.stepper.close()
    except UsageError as error:
        read = [str(error)]
    return read, sum(waited)


def alike(one: Any, other: Any) -> bool:  # noqa: ANN401
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def check(seed: int, has_model: bool, **options: bool) -> bool:
    """Return whether a script reads the same; it crosses, but for compiled code and no model.

    In every other script the other worker has gradients three times as large, so the mean is no
    worker's own; then no gradient is left for the next pass.
    """
    peer = 1 if seed // 2 % 2 else 3
    drops = peer > 1
    plain = Script(
        seed, lambda _, inner: Plain(inner), mean=(1 + peer) // 2, drops=drops, **options
    )
    read = plain.run()
    ours, waited = run_of(seed, has_model, peer, drops=drops, **options)
    assert waited or (options and not has_model)
    return alike(read, ours)


def wrong_seeds(seeds: Iterable[int]) -> List[int]:
    """Return the seeds whose scripts read something else; the even ones give a model."""
    return [seed for seed in seeds if not check(seed, seed % 2 == 0)]


PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_random_scripts_see_the_plain_weights(part: int) -> None:
    assert wrong_seeds(range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(max(4, SEEDS // 100)))
def test_random_scripts_of_compiled_models_do_too(seed: int) -> None:
    torch._dynamo.reset()
    assert check(seed, seed % 2 == 0, compiled=True)


@pytest.mark.parametrize("name", ["become_mean", "become_means"])
def test_a_gradient_that_stays_this_workers_own_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "become_mean":  # no bundle
        monkeypatch.setattr(bundle, "SMALL_BYTES", 0)
    monkeypatch.setattr(waiting_gradients, name, lambda *_: None)
    assert any(wrong_seeds([seed]) for seed in range(40))


def test_a_weight_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def let_all_wait(params: List[torch.Tensor], user: Any) -> None:  # noqa: ANN401
        waiting.let_all_wait([param for param in params if param.dim() > 1], user)

    monkeypatch.setattr(updates, "let_all_wait", let_all_wait)
    assert any(wrong_seeds([seed]) for seed in range(40))


def test_a_class_that_is_given_back_before_the_update_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use = updates.Updates.use

    def early(self: updates.Updates, params: List[torch.Tensor]) -> None:
        for param in params:
            waiting.end_wait(param)
        if threading.active_count() > 1:
            threading.Event().wait(0.05)  # another thread runs
        use(self, params)

    monkeypatch.setattr(updates.Updates, "use", early)
    assert any(wrong_seeds([seed]) for seed in range(400))
