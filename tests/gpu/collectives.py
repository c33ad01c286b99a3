"""torch.distributed over our backend: calls on a GPU have the results of the same on the CPU."""

import itertools
import pathlib
import tempfile
from typing import Any, Callable, Dict, List, Union

import torch
import torch.distributed as dist
from machine import Double, Gpu
from torch import nn

import bytescheduler.torch as bps

Machine = Union[Gpu, Double]
Tensors = List[torch.Tensor]
# Makes a call with a rank's tensor; returns its work and the tensors that hold the result.
Call = Callable[[torch.Tensor], Any]
SHAPES = ((), (0,), (130, 66))
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool)
CASES = (*itertools.product(SHAPES, DTYPES), ((2, 150_000), torch.float32))


def reduced(own: torch.Tensor, operation: Any = dist.ReduceOp.SUM) -> Any:  # noqa: ANN401
    return dist.all_reduce(own, operation, async_op=True), [own]


def gathered(own: torch.Tensor) -> Any:  # noqa: ANN401
    outputs = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    return dist.all_gather(outputs, own, async_op=True), outputs


def gathered_at_one(own: torch.Tensor) -> Any:  # noqa: ANN401
    outputs = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    here = outputs if dist.get_rank() == 1 else None
    return dist.gather(own, here, 1, async_op=True), outputs


def scattered(own: torch.Tensor) -> Any:  # noqa: ANN401
    output = torch.zeros_like(own)
    here = [own.clone() for _ in range(dist.get_world_size())] if dist.get_rank() == 1 else None
    return dist.scatter(output, here, 1, async_op=True), [output]


def gathered_in_one(own: torch.Tensor) -> Any:  # noqa: ANN401
    output = torch.cat([torch.zeros_like(own).reshape(-1)] * dist.get_world_size())
    return dist.all_gather_into_tensor(output, own.reshape(-1), async_op=True), [output]


def reduced_shards(own: torch.Tensor) -> Any:  # noqa: ANN401
    output = torch.zeros_like(own.reshape(-1))
    source = torch.cat([own.reshape(-1)] * dist.get_world_size())
    return dist.reduce_scatter_tensor(output, source, async_op=True), [output]


def exchanged(own: torch.Tensor) -> Any:  # noqa: ANN401
    source = torch.cat([own.reshape(-1)] * dist.get_world_size())
    output = torch.zeros_like(source)
    return dist.all_to_all_single(output, source, async_op=True), [output]


def sent(own: torch.Tensor) -> Any:  # noqa: ANN401
    size, rank = dist.get_world_size(), dist.get_rank()
    output = torch.zeros_like(own)
    receives = dist.irecv(output, (rank - 1) % size)
    dist.send(own.contiguous(), (rank + 1) % size)
    return receives, [output]


CALLS: Dict[str, Call] = {
    "all_reduce": reduced,
    "all_reduce MAX": lambda own: reduced(own, dist.ReduceOp.MAX),
    "broadcast": lambda own: (dist.broadcast(own, 1, async_op=True), [own]),
    "reduce": lambda own: (dist.reduce(own, 1, async_op=True), [own]),
    "all_gather": gathered,
    "gather": gathered_at_one,
    "scatter": scattered,
    "all_gather_into_tensor": gathered_in_one,
    "reduce_scatter_tensor": reduced_shards,
    "all_to_all_single": exchanged,
    "messages": sent,
}


def value(shape: Any, dtype: torch.dtype) -> torch.Tensor:  # noqa: ANN401
    rng = torch.Generator().manual_seed(dist.get_rank())
    return torch.randint(0, 4, shape, generator=rng).to(dtype)


def check_results(machine: Machine) -> None:
    """Let some calls be under way at once, and wait for them from the last one on."""
    for shape, dtype in CASES:
        own = value(shape, dtype)
        wanted: Dict[str, Tensors] = {}
        with machine.at_home():
            for name, call in CALLS.items():
                work, wanted[name] = call(own.clone())
                work.wait()
        layouts = [lambda tensor: tensor, lambda tensor: tensor.mT.contiguous().mT]
        for layout in layouts[: len(shape)] or layouts[:1]:
            begun = {
                name: call(layout(own.to(machine.device, copy=True)))
                for name, call in CALLS.items()
            }
            for name in reversed(list(CALLS)):
                work, results = begun[name]
                work.wait()
                for got, want in zip(results, wanted[name]):
                    assert torch.equal(got.cpu(), want), (name, shape, dtype)


def check_returns(machine: Machine) -> None:
    """Let the device be busy, and see that a call returns before it is done; its wait does not."""
    tensor = torch.ones(1000, device=machine.device)
    dist.all_reduce(tensor)
    machine.wait()
    machine.busy(machine.long_s)
    done = machine.mark()
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future().then(lambda ended: ended.value()[0] * 2)
    assert not done(), "a call waited for the device"
    work.wait()
    assert done(), "a call did not wait for its tensor"
    assert torch.equal(tensor.cpu(), torch.full((1000,), float(dist.get_world_size() ** 2)))
    assert torch.equal(future.wait().cpu(), 2 * tensor.cpu())


def check_training(machine: Machine) -> None:
    """Compare DDP over our backend with DDP over Gloo."""
    gloo = dist.new_group(backend="gloo")
    weights: List[Tensors] = []
    for group in (None, gloo):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to(machine.device)
        ddp = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.01)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9)
        for step in range(4):
            rng = torch.Generator().manual_seed(10 * step + dist.get_rank())
            batch = torch.randn(16, 32, generator=rng).to(machine.device)
            optimizer.zero_grad()
            ddp(batch).square().mean().backward()
            optimizer.step()
        weights.append([param.detach().cpu() for param in model.parameters()])
    assert all(map(torch.equal, *weights))


def check_collectives(machine: Machine) -> None:
    """Make each collective of torch.distributed with tensors on the device."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = bps.broadcast_object((pathlib.Path(folder) / "meet").as_uri())
        dist.init_process_group("bytescheduler", meeting, rank=bps.rank(), world_size=bps.size())
        check_results(machine)
        check_returns(machine)
        check_training(machine)
        dist.barrier()
        dist.destroy_process_group()
