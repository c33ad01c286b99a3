"""Data parallel modules: ours, and PyTorch's own with our hook; each worker checks."""

import contextlib
import copy
import gc
import io
import tempfile
import weakref
from typing import List

import torch
from checks import refused, run_all
from models import loss_of, new_model
from torch import nn

import bytescheduler.torch as bps


class Toy(nn.Module):
    """Two layers, and buffers that forward changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(10, 10)
        self.norm = nn.BatchNorm1d(10)
        self.second = nn.Linear(10, 5)
        self.spare = nn.Linear(2, 2)
        self.with_spare = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.norm(self.first(x)).relu())
        return y + self.spare(torch.ones(2)).sum() if self.with_spare else y


def toy(seed: int) -> Toy:
    torch.manual_seed(seed)
    return Toy()


def data(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 10, generator=generator)


def mean_gradients(model: Toy, step: int, passes: int = 1) -> List[torch.Tensor]:
    """Return what all workers' batches give this model, in one process."""
    state = {key: value.clone() for key, value in model.state_dict().items()}
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for rank in range(bps.size()):
        model.load_state_dict(state)
        model.zero_grad()
        for n in range(passes):
            model(data(step + n, rank)).square().mean().backward()
        sums = [s if p.grad is None else s + p.grad for s, p in zip(sums, model.parameters())]
    model.load_state_dict(state)
    model.zero_grad()
    return [each * (1.0 / bps.size()) for each in sums]


def check_gradients(ddp: nn.Module, want: List[torch.Tensor]) -> None:
    for (name, param), mean in zip(ddp.module.named_parameters(), want):
        if "spare" in name and not ddp.module.with_spare:
            assert param.grad is None, name
        else:
            assert torch.equal(param.grad, mean), name


def ordinary_use(rank: int) -> None:
    ddp = bps.DistributedDataParallel(toy(rank))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    twin = toy(0)
    for step in range(5):
        ddp.module.with_spare = twin.with_spare = step % 2 == 1
        twin.load_state_dict(ddp.module.state_dict())
        if rank == 1:  # forward takes worker 0's buffers
            ddp.module.norm.running_mean.fill_(77.0)
        want = mean_gradients(twin, step)
        optimizer.zero_grad(set_to_none=step % 3 != 0)
        if step % 3 == 0:
            ddp.module.spare.zero_grad()
        ddp(data(step, rank)).square().mean().backward()
        check_gradients(ddp, want)
        optimizer.step()
        assert float(ddp.module.norm.running_mean.max()) < 70.0
    weights = bps.allgather_object(ddp.module.second.weight.tolist())
    assert weights[0] == weights[1]


def accumulation(rank: int) -> None:
    ddp = bps.DistributedDataParallel(toy(4), broadcast_buffers=False)
    want = mean_gradients(toy(4), 0, passes=2)
    with ddp.no_sync():
        ddp(data(0, rank)).square().mean().backward()
    alone = [p.grad.clone() for p in ddp.parameters() if p.grad is not None]
    ddp(data(1, rank)).square().mean().backward()
    check_gradients(ddp, want)
    assert not torch.equal(alone[0], ddp.module.first.weight.grad)


def uneven_parameters(rank: int) -> None:
    """Each worker uses another layer."""
    model = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])
    ddp = bps.DistributedDataParallel(model)
    (ddp.module[rank](torch.ones(2)) * 4).sum().backward()
    assert torch.equal(model[0].weight.grad, torch.full((2, 2), 2.0))
    assert torch.equal(model[1].weight.grad, torch.full((2, 2), 2.0))
    assert model[2].weight.grad is None


def bad_input(rank: int) -> None:
    refused("no parameter of the module", bps.DistributedDataParallel, nn.ReLU())
    model = nn.Linear(2, 2)
    refused("one device", bps.DistributedDataParallel, model, device_ids=[0, 1])
    ddp = bps.DistributedDataParallel(model)
    refused("weight: its gradients are averaged already", bps.DistributedDataParallel, model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    refused("wrapped twice", bps.DistributedOptimizer, optimizer, model=model)
    refused("want a torch.nn.Module", bps.DistributedDataParallel, [model])
    del ddp


def dropped(rank: int) -> None:
    """Whatever becomes of the wrapper, gradients stay means as long as the module lives."""
    model = toy(rank)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        bps.DistributedDataParallel(model, bucket_cap_mb=25)
    assert "needs no bucket_cap_mb: gradients travel one by one" in said.getvalue()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(3):
        gc.collect()
        model.norm.running_mean.zero_()  # the module itself shares no buffers
        model.norm.running_var.fill_(1.0)
        twin = toy(0)
        twin.load_state_dict(model.state_dict())
        want = mean_gradients(twin, step)
        optimizer.zero_grad()
        model(data(step, rank)).square().mean().backward()
        for (name, param), mean in zip(model.named_parameters(), want):
            assert "spare" in name or torch.equal(param.grad, mean), name
        optimizer.step()
    twice = copy.deepcopy(model)
    twice(data(0, rank)).square().mean().backward()  # a copy has gradients of its own
    saved = io.BytesIO()
    torch.save(model, saved)
    assert b"bytescheduler" not in saved.getvalue().replace(b"_bytescheduler_wrapper", b"")
    kept = model.second
    gone = weakref.ref(model.first.weight)
    del model, optimizer, name, param
    gc.collect()
    assert gone() is not None  # one layer keeps the others
    del kept
    gc.collect()
    assert gone() is None


def closed(rank: int) -> None:
    model = nn.Linear(2, 2, bias=False)
    ddp = bps.DistributedDataParallel(model)
    ddp.close()
    ddp(torch.full((1, 2), float(rank))).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((2, 2), float(rank)))
    ddp = bps.DistributedDataParallel(model, init_sync=False)
    model.weight.grad = None
    ddp(torch.full((1, 2), float(rank))).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((2, 2), 0.5))


class Growing(nn.Module):
    """A module whose buffers change on all workers alike."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = getattr(self, "seen", torch.zeros(0))
        self.register_buffer("seen", torch.cat([seen, x.detach().sum().view(1)]))
        return self.layer(x)


def growing_buffers(rank: int) -> None:
    ddp = bps.DistributedDataParallel(Growing())
    for step in range(5):
        ddp(torch.full((1, 3), float(10 * rank + step))).sum().backward()
        seen = ddp.module.seen.tolist()
        assert seen == [3.0 * n for n in range(step)] + [30.0 * rank + 3 * step], seen


def arguments(rank: int) -> None:
    model = nn.Linear(2, 2)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        bps.DistributedDataParallel(
            model, None, "cpu", 0, True, gradient_as_bucket_view=True, static_graph=True
        ).close()
        bps.DistributedDataParallel(model, dim=1, check_reduction=True, mixed_precision=None)
    lines = said.getvalue().splitlines()
    names = ["gradient_as_bucket_view", "static_graph", "dim", "check_reduction"]
    assert sorted(line.split()[4].rstrip(":") for line in lines) == sorted(names), lines
    for text, given in (
        ("outputs stay on cpu", {"output_device": 0}),
        ("pass broadcast_buffers by its name", {"output_device": True}),
        ("use torch.autocast", {"mixed_precision": object()}),
        ("there is no argument 'bucket_cap'", {"bucket_cap": 1}),
        ("want a ProcessGroup of all workers", {"process_group": "gloo"}),
    ):
        refused(text, bps.DistributedDataParallel, nn.Linear(2, 2), **given)


def stock_with_our_hook(rank: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        meeting = bps.broadcast_object(f"file://{folder}/meet")
        torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=bps.size())
        alone = [torch.distributed.new_group([one]) for one in range(bps.size())][rank]
        model = nn.Linear(2, 2)
        refused("it has 1 of 2", bps.DistributedDataParallel, model, process_group=alone)
        bps.DistributedDataParallel(model, process_group=torch.distributed.group.WORLD).close()
        for options in ({"find_unused_parameters": True}, {"static_graph": True}):
            stock = nn.parallel.DistributedDataParallel(new_model(), **options)
            hooked = nn.parallel.DistributedDataParallel(
                new_model(), bucket_cap_mb=0.001, **options
            )
            hooked.register_comm_hook(None, bps.ddp_hook)
            for step in range(4):
                for ddp in (stock, hooked):
                    ddp.zero_grad()
                    loss_of(ddp, step, rank).backward()
                pairs = zip(stock.named_parameters(), hooked.module.parameters())
                for (name, one), other in pairs:
                    if one.grad is not None:
                        assert torch.equal(one.grad, other.grad), name
        bps.barrier()
        torch.distributed.destroy_process_group()


CHECKS = [
    *(ordinary_use, accumulation, uneven_parameters, bad_input, dropped, closed, growing_buffers),
    *(arguments, stock_with_our_hook),
]

run_all(bps, CHECKS, with_rank=True)
