"""Workers that start apart: models become worker 0's, or an error says so; each worker checks."""

import contextlib
import copy
import io
import pathlib
import re
from typing import Any, Callable, Dict, List

import torch
from checks import refused, run_all
from models import Model, loss_of, same
from torch import nn

import bytescheduler.torch as bps

Option = Any
PAGES = pathlib.Path(__file__).resolve().parents[4]
CURE = (
    "call bytescheduler.torch.broadcast_parameters(model.state_dict(), root_rank=0) on every worker"
)


def seeded(rank: int, make: Callable[[], nn.Module] = Model) -> nn.Module:
    torch.manual_seed(100 + rank)
    return make()


def state(model: nn.Module) -> Dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def linear(rank: int, **options: Option) -> "tuple[nn.Module, Any]":
    """Return equal models, and optimizers whose options may differ."""
    model = seeded(0, lambda: nn.Linear(3, 2))
    return model, torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def step(model: nn.Module, optimizer: Any, number: int = 0) -> None:  # noqa: ANN401
    optimizer.zero_grad()
    model(torch.full((2, 3), 1.0 + number + bps.rank())).sum().backward()
    optimizer.step()


def as_pages_say(rank: int) -> None:
    """Follow snippets to the letter: all start with worker 0's model, and end with equal models."""
    for page in ("README.md", "docs/user/pytorch.md"):
        text = (PAGES / page).read_text()
        found = re.search(r"```python\n(import bytescheduler\.torch as bps\n.*?)```", text, re.S)
        assert found is not None
        assert "broadcast" not in found.group(1)
        follow(found.group(1), rank)


def follow(snippet: str, rank: int) -> None:
    model = seeded(rank)
    first = state(seeded(0))
    names = {"model": model, "optimizer": torch.optim.Adam(model.parameters(), 0.01)}
    exec(snippet, names)
    optimizer: Any = names["optimizer"]
    assert same(state(model), first)
    assert (rank == 0) is same(state(seeded(rank)), first)
    for number in range(3):
        optimizer.zero_grad()
        loss_of(model, number, rank).backward()
        optimizer.step()
    weights = {name: param.detach().clone() for name, param in model.named_parameters()}
    optimizer.close()
    assert same(weights, bps.broadcast_object(weights))
    assert not same(weights["out.bias"], first["out.bias"])


class Odd(nn.Module):
    """All kinds of tensors that a model can have."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Parameter(torch.randn(3, 3).to(torch.bfloat16))
        self.wide = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.turned = nn.Parameter(torch.randn(4, 3).t())
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.register_buffer("flags", torch.randn(3) > 0)
        self.register_buffer("hidden", torch.randn(2, 2), persistent=False)
        self.register_buffer("zero", torch.tensor(0.0 if bps.rank() == 0 else -0.0))
        self.register_buffer("nan", torch.tensor(0x7FC00000 + bps.rank()).int().view(torch.float32))


def all_kinds(rank: int) -> None:
    model, want = seeded(rank, Odd), seeded(0, Odd)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    bps.DistributedOptimizer(optimizer, model=model).close()
    assert same(dict(model.named_parameters()), dict(want.named_parameters()))
    assert same([model.flags, model.hidden], [want.flags, want.hidden])
    assert model.zero.view(torch.int32).item() == 0
    assert model.nan.view(torch.int32).item() == 0x7FC00000
    assert model.turned.stride() == want.turned.stride()


def without_the_model(rank: int) -> None:
    said = f"weight: worker 1 has other values than worker 0; {CURE} before training"
    for crossing in ("auto", False):
        model = seeded(rank, lambda: nn.Linear(3, 2))
        inner = torch.optim.SGD(model.parameters(), 0.1)
        optimizer = bps.DistributedOptimizer(inner, model.named_parameters(), crossing=crossing)
        before = state(model)
        refused(said, step, model, optimizer)
        assert same(state(model), before)
        refused(said, optimizer.zero_grad)
        bps.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer.close()
        optimizer = bps.DistributedOptimizer(inner, crossing=crossing)
        step(model, optimizer)
        optimizer.close()
        assert same(state(model), bps.broadcast_object(state(model)))


def loaded_behind_the_wrapper(rank: int) -> None:
    """A checkpoint that worker 0 alone loads behind the call, into weights and frozen ones."""
    for name in ("weight", "bias"):
        model, inner = linear(rank)
        model.bias.requires_grad_(False)
        optimizer = bps.DistributedOptimizer(inner, model=model)
        with torch.no_grad():
            getattr(model, name)[0] += 1.0 if rank == 0 else 0.0
        refused(f"{name}: worker 1 has other values than worker 0; {CURE}", step, model, optimizer)
        optimizer.close()


def new_parameters(rank: int) -> None:
    model, inner = linear(rank)
    optimizer = bps.DistributedOptimizer(inner, model=model)
    step(model, optimizer)
    more = seeded(rank, lambda: nn.Linear(3, 2))
    optimizer.add_param_group({"params": [more.weight], "lr": 0.2})

    def both() -> None:
        optimizer.zero_grad()
        (model(torch.ones(2, 3)) + more(torch.ones(2, 3))).sum().backward()
        optimizer.step()

    refused("parameter 2: worker 1 has other values than worker 0", both)
    optimizer.close()


def parallel_module(rank: int) -> None:
    ddp = bps.DistributedDataParallel(seeded(rank, lambda: nn.Linear(3, 2)), init_sync=False)
    loss = ddp(torch.ones(2, 3)).sum()
    refused(f"weight: worker 1 has other values than worker 0; {CURE}", loss.backward)
    ddp.close()


# -- the optimizer -----------------------------------------------------------------------------


def other_numbers(rank: int) -> None:
    for options, said in (
        ({"lr": 0.1 + 0.1 * rank}, "lr of group 0 of the optimizer: it is 0.1 on worker 0 and 0.2"),
        ({"momentum": 0.9 * rank}, "momentum of group 0 of the optimizer: it is 0 on worker 0 and"),
        ({"foreach": bool(rank)}, "foreach of group 0 of the optimizer: it is False on worker 0"),
    ):
        model, inner = linear(rank, **options)
        refused(said, bps.DistributedOptimizer, inner, model=model)
    model, inner = linear(rank)
    if rank == 1:
        inner = torch.optim.Adam(model.parameters(), 0.1)
    said = "the optimizer's class: it is SGD on worker 0 and Adam on worker 1; make the same"
    refused(said, bps.DistributedOptimizer, inner, model=model)
    groups = [[p] for p in model.parameters()] if rank == 0 else [list(model.parameters())]
    inner = torch.optim.SGD([{"params": params} for params in groups], 0.1)
    said = "the number of the optimizer's groups: it is 2 on worker 0 and 1 on worker 1"
    refused(said, bps.DistributedOptimizer, inner, model=model)
    rate = 0.5 if rank == 0 else torch.tensor(0.5, dtype=torch.float64)
    betas = (0.9, 0.99) if rank == 0 else [0.9, torch.tensor(0.99, dtype=torch.float64)]
    inner = torch.optim.Adam(model.parameters(), rate, foreach=False)
    inner.param_groups[0]["betas"] = betas
    bps.DistributedOptimizer(inner, model=model).close()  # equal numbers of other types
    inner.param_groups[0]["betas"] = (0.9, 0.99 + 0.001 * rank)
    said = "betas of group 0 of the optimizer: it is (0.9, 0.99) on worker 0 and (0.9, 0.991) on"
    refused(said, bps.DistributedOptimizer, inner, model=model)


def other_arguments(rank: int) -> None:
    for options, said in (
        ({"backward_passes_per_step": 1 + rank}, "backward_passes_per_step: it is 1 on worker 0"),
        ({"op": bps.Sum if rank else bps.Average}, "op: it is Average on worker 0 and Sum on"),
        ({"crossing": [False, "auto"][rank]}, "crossing: it is False on worker 0 and not False"),
        (
            {"compression": [bps.Compression.none, bps.Compression.fp16][rank]},
            "compression or compression_params: it is",
        ),
        (
            {"gradient_predivide_factor": 2.0 + rank},
            "compression or compression_params: it is Compression.none scaled by 0.5",
        ),
        ({"sparse_as_dense": bool(rank)}, "sparse_as_dense: it is False on worker 0 and True on"),
        ({"find_unused": bool(rank)}, "find_unused: it is False on worker 0 and True on worker 1"),
    ):
        model, inner = linear(rank)
        refused(f"the argument {said}", bps.DistributedOptimizer, inner, model=model, **options)
    named = {"model": model} if rank == 0 else {"named_parameters": model.named_parameters()}
    said = "the argument model: it is a model on worker 0 and None on worker 1; pass the same to"
    refused(said, bps.DistributedOptimizer, inner, **named)


def other_models(rank: int) -> None:
    def made(change: Callable[[nn.Module], object]) -> nn.Module:
        model = seeded(0, lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        if rank == 1:
            change(model)
        return model

    for change, said in (
        (
            lambda m: setattr(m[1], "running_var", torch.ones(3)),
            "buffer 1.running_var: it is torch.float32 of shape (2,) on worker 0 and torch.float32 "
            "of shape (3,) on worker 1; build the same model on every worker",
        ),
        (
            lambda m: setattr(m[0], "bias", nn.Parameter(torch.ones(4))),
            "0.bias: it is torch.float32 of shape (2,) on worker 0 and torch.float32 of shape (4,)",
        ),
        (
            lambda m: m[0].bias.requires_grad_(False),
            "0.bias: it is torch.float32 of shape (2,) on worker 0 and torch.float32 of shape (2,) "
            "and frozen on worker 1",
        ),
        (
            lambda m: m[1].register_buffer("more", torch.ones(1)),
            "buffer 1.more: it is absent on worker 0 and torch.float32 of shape (1,) on worker 1",
        ),
    ):
        model = made(change)
        before = state(model)
        inner = torch.optim.SGD(model.parameters(), 0.1)
        refused(said, bps.DistributedOptimizer, inner, model=model)
        assert same(state(model), before)


def changed_numbers(rank: int) -> None:
    """A scheduler on both workers is well; on one worker the next step, at the latest, fails."""
    said = "lr of group 0 of the optimizer: it is 0.1 on worker 0 and 0.05 on worker 1; give the"
    for crossing in ("auto", False):
        model, inner = linear(rank)
        optimizer = bps.DistributedOptimizer(inner, model=model, crossing=crossing)
        both = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for number in range(3):
            step(model, optimizer, number)
            both.step()
        for group in optimizer.param_groups:
            group["lr"] = 0.1 if rank == 0 else 0.05
        before = state(model)
        if crossing:
            step(model, optimizer)
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            refused(said, optimizer.step)
        else:
            refused(said, step, model, optimizer)
            assert same(state(model), before)
        optimizer.close()
    model, inner = linear(rank)
    optimizer = bps.DistributedOptimizer(inner, model=model, crossing=False)
    if rank == 1:
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.0)
    said = "initial_lr of group 0 of the optimizer: it is absent on worker 0 and 0.1 on worker 1"
    refused(said, step, model, optimizer)
    optimizer.close()


def loaded_state(rank: int) -> None:
    """Worker 0 alone loads a checkpoint: an error in the first step, unless all get it before."""
    model, inner = linear(rank, momentum=0.9)
    step(model, inner)
    saved: List[Any] = [copy.deepcopy((inner.state_dict(), model.state_dict()))]
    saved[0][0]["param_groups"][0]["lr"] = 0.025

    def resumed() -> "tuple[nn.Module, Any]":
        model, inner = linear(rank, momentum=0.9)
        if rank == 0:
            inner.load_state_dict(saved[0][0])
            model.load_state_dict(saved[0][1])
        return model, inner

    model, inner = resumed()
    optimizer = bps.DistributedOptimizer(inner, model=model)
    refused("lr of group 0 of the optimizer: it is 0.025 on", step, model, optimizer)
    for group in inner.param_groups:
        group["lr"] = 0.1
    said = (
        "momentum_buffer of weight in the optimizer's state: it is there on worker 0 and absent on "
        "worker 1; load the checkpoint on every worker, or call "
        "bytescheduler.torch.broadcast_optimizer_state(optimizer, root_rank=0) on every worker"
    )
    refused(said, optimizer.zero_grad)
    optimizer.close()
    model, inner = resumed()
    optimizer = bps.DistributedOptimizer(inner, model=model)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    with contextlib.redirect_stderr(io.StringIO()):
        step(model, optimizer)
    ended = state(model), optimizer.state_dict()
    optimizer.close()
    assert same(ended, bps.broadcast_object(ended))


def buffers(rank: int) -> None:
    """Buffers differ where the page says so, and weights do not."""

    def are_equal(tensors: Any) -> bool:  # noqa: ANN401
        return len({str(each) for each in bps.allgather_object(dict(tensors))}) == 1

    for norm, wrap, stay_equal in (
        (nn.BatchNorm1d, "optimizer", False),
        (nn.BatchNorm1d, "module", False),
        (bps.SyncBatchNorm, "optimizer", True),
        (bps.SyncBatchNorm, "module", True),
    ):
        torch.manual_seed(rank)
        model = nn.Sequential(nn.Linear(3, 3), norm(3), nn.Linear(3, 1))
        model[1].running_mean += rank
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        ddp = bps.DistributedDataParallel(model) if wrap == "module" else None
        if ddp is None:
            optimizer = bps.DistributedOptimizer(optimizer, model=model)
        assert are_equal(model.named_buffers())
        for _ in range(2):
            optimizer.zero_grad()
            (ddp or model)(torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
        assert are_equal(model.named_parameters())
        assert are_equal(model.named_buffers()) is stay_equal, (norm, wrap)
        bps.broadcast_parameters(model.state_dict(), root_rank=0)
        assert are_equal(model.named_buffers())
        (optimizer if ddp is None else ddp).close()


CHECKS = [
    *(as_pages_say, all_kinds, without_the_model, loaded_behind_the_wrapper, new_parameters),
    *(parallel_module, other_numbers, other_arguments, other_models, changed_numbers, loaded_state),
    buffers,
]

run_all(bps, CHECKS, with_rank=True)
