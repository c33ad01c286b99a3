"""Ordinary uses of an optimizer, with a barrier and across it; each worker checks."""

import copy
import functools
from typing import Any, Callable, Dict, List

import torch
from checks import refused, run_all
from models import OPTIMIZERS, Model, batch, loss_of, new_model, same
from torch import nn

import bytescheduler.torch as bps

Optimizer = Any  # DistributedOptimizer, or what stands in for it
Option = Any
End = Any  # weights, and what else must be equal
Step = Callable[[Model, Optimizer, int], None]


def wrap(model: nn.Module, name: str = "adam", **options: Option) -> Optimizer:
    return bps.DistributedOptimizer(OPTIMIZERS[name](model), model=model, **options)


def weights(model: nn.Module) -> Dict[str, torch.Tensor]:
    states = model.state_dict()
    return {name: states[name].clone() for name, _ in model.named_parameters()}


def trained(step: Step, steps: int = 6, name: str = "adam", **options: Option) -> End:
    model = new_model()
    optimizer = wrap(model, name, **options)
    for number in range(steps):
        step(model, optimizer, number)
    ended = weights(model)
    optimizer.close()
    return ended


def alike(step: Step, name: str = "adam", **options: Option) -> None:
    """Check that crossing changes no bit, and that the workers agree."""
    across = trained(step, name=name, crossing="auto", **options)
    assert same(across, trained(step, name=name, crossing=False, **options))
    told = bps.broadcast_object(across)
    assert same(across, told)


def usual(model: Model, optimizer: Optimizer, step: int) -> None:
    optimizer.zero_grad()
    loss_of(model, step, bps.rank()).backward()
    optimizer.step()


# -- all gradients at once -------------------------------------------------------------------------


def clipped(model: Model, optimizer: Optimizer, step: int, skips: bool = False) -> None:
    optimizer.zero_grad()
    loss_of(model, step, bps.rank()).backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    assert same(bps.broadcast_object(norm), norm)
    if skips:
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()


def clip_by_norm() -> None:
    alike(clipped, "sgd")
    once = trained(clipped, crossing=True)
    assert same(once, trained(functools.partial(clipped, skips=True), crossing=False))


def changed_gradients() -> None:
    """Whatever changes gradients behind the optimizer's back is an error that names one."""
    model = new_model()
    optimizer = wrap(model, crossing=True)
    changes: List[Callable[[], Any]] = [
        lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.5),
        lambda: model.zero_grad(set_to_none=False),
        lambda: model.scale.grad.zero_(),
        lambda: model.scale.grad.div_(2.0),  # as scalers do
        lambda: setattr(model.scale.grad, "data", torch.zeros(8)),
        lambda: setattr(model.scale, "grad", torch.zeros(8)),
    ]
    for step, change in enumerate(changes):
        for call in (optimizer.step, optimizer.synchronize):
            loss_of(model, step, bps.rank()).backward()
            change()
            refused("call optimizer.synchronize() before", call)
            optimizer.zero_grad()
    usual(model, optimizer, 9)
    optimizer.close()


def dropped(model: Model, optimizer: Optimizer, step: int) -> None:
    optimizer.zero_grad()
    loss_of(model, step + 1, bps.rank()).backward()
    model.zero_grad()
    loss_of(model, step, bps.rank()).backward()
    optimizer.step()


def by_hand(model: Model, optimizer: Optimizer, step: int) -> None:
    params = [param for param in model.parameters() if param.requires_grad]
    loss = loss_of(model, step, bps.rank())
    for param, grad in zip(params, torch.autograd.grad(loss, params, allow_unused=True)):
        param.grad = grad
    optimizer.step()


def zeroed(model: Model, optimizer: Optimizer, step: int) -> None:
    model.zero_grad(set_to_none=False)
    loss_of(model, step, bps.rank()).backward()
    optimizer.step()
    for param in model.parameters():
        mean = None if param.grad is None else param.grad.clone()
        assert same(bps.broadcast_object(mean), mean)


def gradients_of_scripts() -> None:
    """Gradients are what lies in `p.grad`."""
    assert same(trained(dropped), trained(usual))
    for step in (dropped, by_hand, zeroed):
        alike(step)


def clip_by_value() -> None:
    def clip(param: nn.Parameter) -> None:
        nn.utils.clip_grad_value_([param], 0.01)

    alike(usual, "sgd", on_gradient=clip)
    assert not same(trained(usual, name="sgd", on_gradient=clip), trained(usual, name="sgd"))


def scaled_losses() -> None:
    """One worker's gradients overflow in one step: all leave it out."""

    def run(crossing: Option) -> End:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)

        def step(model: Model, optimizer: Optimizer, number: int) -> None:
            optimizer.zero_grad()
            loss = loss_of(model, number, bps.rank())
            if number == 2 and bps.rank() == 1:
                loss = loss * torch.inf
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        ended = trained(step, crossing=crossing)
        return ended, scaler.get_scale()

    across = run("auto")
    assert same(across, run(False))
    assert same(across, bps.broadcast_object(across))
    assert all(bool(each.isfinite().all()) for each in across[0].values())


def half_precision() -> None:
    def step(model: Model, optimizer: Optimizer, number: int) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, number, bps.rank())
        loss.backward()
        optimizer.step()

    alike(step)


# -- numbers and state -----------------------------------------------------------------------------


def schedulers() -> None:
    def run(crossing: Option, kind: str) -> End:
        model = new_model()
        optimizer = wrap(model, "sgd", crossing=crossing)
        if kind == "plateau":
            scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        else:
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6)
        for step in range(6):
            usual(model, optimizer, step)
            scheduler.step(*([1.0] if kind == "plateau" else []))
        ended = weights(model), optimizer.state_dict()
        optimizer.close()
        return ended

    for kind in ("plateau", "one cycle"):
        assert same(run(True, kind), run(False, kind))


def closures() -> None:
    def step(model: Model, optimizer: Optimizer, number: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, number, bps.rank())
            loss.backward()
            return loss

        assert float(optimizer.step(closure).detach()) > 0

    alike(step)
    model = new_model()
    inner = torch.optim.LBFGS(model.parameters(), 0.1, line_search_fn="strong_wolfe")
    refused("LBFGS cannot cross", bps.DistributedOptimizer, inner, model=model, crossing=True)
    optimizer = bps.DistributedOptimizer(inner, model=model)
    assert not optimizer.crosses
    before = weights(model)
    step(model, optimizer, 0)
    after = weights(model)
    assert not same(before, after)
    assert same(after, bps.broadcast_object(after))
    optimizer.close()


def resumed() -> None:
    """State taken in the middle, across the barrier, and loaded into new objects."""
    whole = trained(usual, 6, "adamw", crossing=True)
    model = new_model()
    optimizer = wrap(model, "adamw", crossing=True)
    for step in range(3):
        usual(model, optimizer, step)
    saved = copy.deepcopy((optimizer.state_dict(), model.state_dict()))
    optimizer.close()
    model = new_model()
    optimizer = wrap(model, "adamw", crossing=True)
    usual(model, optimizer, 0)
    optimizer.load_state_dict(saved[0])
    model.load_state_dict(saved[1])
    for step in range(3, 6):
        usual(model, optimizer, step)
    assert same(weights(model), whole)
    loss_of(model, 6, 0).backward()
    refused("between backward and step()", optimizer.state_dict)
    refused("cannot be copied or pickled", copy.deepcopy, optimizer)
    optimizer.close()


# -- accumulation ----------------------------------------------------------------------------------


def accumulated() -> None:
    def step(model: Model, optimizer: Optimizer, number: int) -> None:
        optimizer.zero_grad()
        for part in range(2):
            loss_of(model, 2 * number + part, bps.rank()).backward()
        optimizer.step()

    alike(step, backward_passes_per_step=2)
    model = new_model()
    optimizer = wrap(model, crossing=True)
    loss_of(model, 0, bps.rank()).backward()
    refused("backward made two gradients before step()", loss_of(model, 0, 0).backward)
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(3)
    for _ in range(3):
        loss_of(model, 0, bps.rank()).backward()
    refused("backward_passes_per_step=3", loss_of(model, 0, 0).backward)
    optimizer.zero_grad()
    loss_of(model, 0, bps.rank()).backward()
    optimizer.step()  # sooner than announced
    optimizer.close()


def checkpointed() -> None:
    """Activation checkpointing runs forward again, inside backward."""

    class Twice(nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            self.shared = nn.Linear(4, 4)
            self.reentrant = reentrant

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = torch.utils.checkpoint.checkpoint(self.shared, x, use_reentrant=self.reentrant)
            return x

    def run(reentrant: bool, crossing: Option) -> End:
        torch.manual_seed(1)
        model = Twice(reentrant)
        optimizer = bps.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), 0.1), model=model, crossing=crossing
        )
        for step in range(4):
            optimizer.zero_grad()
            x = torch.ones(2, 4, requires_grad=True) * (step + bps.rank())
            model(x).square().sum().backward()
            optimizer.step()
        ended = weights(model)
        optimizer.close()
        return ended

    assert same(run(False, True), run(False, False))
    refused("shared.bias: backward made two gradients", run, True, True)


# -- wrong use -------------------------------------------------------------------------------------


def wrong_use() -> None:
    model = new_model()
    inner = OPTIMIZERS["adam"](model)
    wrap_it = functools.partial(bps.DistributedOptimizer, inner)
    named = list(model.named_parameters())
    refused("model.parameters() has no names", wrap_it, model.parameters())
    refused("conv.bias: two parameters", wrap_it, [*named, ("conv.bias", named[0][1])])
    refused("is not in named_parameters", wrap_it, named[1:])
    refused("is not in model", wrap_it, model=model.conv)
    refused('want True, False or "auto"', wrap_it, model=model, crossing="maybe")
    refused("want 1 or more", wrap_it, backward_passes_per_step=0)
    refused("want Average or Sum", wrap_it, op="adasum")
    refused("give it first and the model as model=model", bps.DistributedOptimizer, model)
    refused("it is a DataParallel", wrap_it, model=nn.DataParallel(model))
    sharded = type("FullyShardedDataParallel", (nn.Module,), {})()
    refused("it is sharded (FSDP)", wrap_it, model=nn.Sequential(sharded))
    optimizer = wrap_it(model=model)
    refused("wrap it once", bps.DistributedOptimizer, optimizer)
    refused("scale: its gradients are averaged already", wrap_it, model=model)
    refused("call backward() first", optimizer.step)  # no gradient came yet
    loss_of(model, 0, bps.rank()).backward()
    with optimizer.skip_synchronize():
        refused("synchronize() first", optimizer.step)
    optimizer.step()
    optimizer.synchronize()
    optimizer.synchronize()
    refused("call backward on every worker", optimizer.step)
    optimizer.close()
    sparse = nn.Embedding(4, 4, sparse=True)
    given: Dict[str, Any] = {"model": sparse}
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(sparse.parameters(), 0.1), **given)
    refused("weight: its gradient is sparse", sparse(torch.tensor([1])).sum().backward)
    optimizer.close()
    given["sparse_as_dense"] = True
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(sparse.parameters(), 0.1), **given)
    sparse.zero_grad()
    sparse(torch.tensor([bps.rank()])).sum().backward()
    optimizer.synchronize()
    assert sparse.weight.grad.sum(1).tolist() == [2.0, 2.0, 0.0, 0.0]
    optimizer.close()


def left_out() -> None:
    """A worker without any gradient, and parameters that only some workers use."""
    model = new_model()
    optimizer = wrap(model, "adamw", crossing=True, named_parameters=model.named_parameters())
    usual(model, optimizer, 0)
    if bps.rank() == 0:
        loss_of(model, 1, 0).backward()
    optimizer.step()
    model.takes = bps.rank() == 0
    usual(model, optimizer, 2)
    ended = weights(model)
    assert same(ended, bps.broadcast_object(ended))
    optimizer.close()
    model.takes = True
    optimizer = wrap(model, crossing=True, find_unused=False)
    loss_of(model, 0, 0).backward()
    refused("unused.weight: backward made no gradient", optimizer.step)
    optimizer.close()


def two_optimizers() -> None:
    """As for a GAN: one model's gradients are not used in the other's step."""

    def run(crossing: Option) -> End:
        torch.manual_seed(2)
        makes, judges = nn.Linear(3, 4), nn.Linear(4, 1)
        both = []
        for model in (makes, judges):
            inner = torch.optim.Adam(model.parameters(), 0.1)
            both.append(bps.DistributedOptimizer(inner, model=model, crossing=crossing))
        noise = torch.ones(2, 3) * (bps.rank() + 1)
        for step in range(5):
            both[1].zero_grad()
            judges(makes(noise * step).detach()).square().sum().backward()
            both[1].step()
            both[0].zero_grad()
            judges(makes(noise)).sum().backward()
            both[0].step()
        ended = weights(makes), weights(judges)
        for optimizer in both:
            optimizer.close()
        return ended

    assert same(run(True), run(False))


def unfrozen() -> None:
    def run(crossing: Option) -> End:
        model = new_model()
        optimizer = wrap(model, crossing=crossing)
        usual(model, optimizer, 0)
        model.frozen.requires_grad_(True)
        optimizer.refresh()
        usual(model, optimizer, 1)
        more = nn.Parameter(torch.ones(8))
        model.register_parameter("more", more)
        optimizer.add_param_group({"params": [more]})
        usual(model, optimizer, 2)
        ended = weights(model)
        optimizer.close()
        assert not torch.equal(ended["frozen.weight"], new_model().frozen.weight)
        return ended

    assert same(run(True), run(False))


def compressed() -> None:
    for name in ("fp16", "bf16"):
        alike(usual, compression=getattr(bps.Compression, name))
    two_bit = bps.Compression.two_bit(0.01)
    alike(usual, "sgd", compression=two_bit)
    coded = bps.push_pull(torch.tensor([0.02, 0.0, -0.02]), False, "coded", compression=two_bit)
    assert same(coded, torch.tensor([0.01, 0.0, -0.01]) * 2), coded
    refused("threshold", bps.Compression.two_bit, -1.0)


CHECKS = [
    *(clip_by_norm, changed_gradients, clip_by_value, scaled_losses, half_precision, schedulers),
    *(closures, resumed, accumulated, checkpointed, wrong_use, left_out, two_optimizers, unfrozen),
    compressed,
    gradients_of_scripts,
]

assert batch(0, 0).shape == (4, 6)
run_all(bps, CHECKS)
