"""Calls that reduce: to all ranks, to one, or a shard to each."""

from typing import List, Sequence

import torch

from bytescheduler.torch._backend.moves import all_gather, all_to_all, gather
from bytescheduler.torch._backend.plan import Plan, shards
from bytescheduler.torch._backend.reductions import Reduction
from bytescheduler.torch._engine.dtypes import size_of

__all__ = ["all_reduce", "reduce", "reduce_scatter"]


def _stages(plan: Plan, tensor: torch.Tensor) -> List[torch.Tensor]:
    """Return memory for the contributions of all ranks."""
    return [plan.room(tensor) for _ in plan.members.all]


def _reduce_locally(
    plan: Plan, target: torch.Tensor, stages: List[torch.Tensor], reduction: Reduction
) -> None:
    """Reduce contributions that have arrived, as the last step."""

    def step() -> None:
        reduction.reduce(stages, result)
        reduction.finish(result, plan.members.size)

    plan.then(step)
    result = plan.land(target).memory.view(-1)


def all_reduce(plan: Plan, part: int, tensor: torch.Tensor, reduction: Reduction) -> None:
    """Reduce the contributions in place, a shard on each rank."""
    members, numbers = plan.members, reduction.on_engine
    if members.size == 1:
        return
    if numbers is None:
        stages = _stages(plan, tensor)
        all_gather(plan, part, stages, tensor.detach().reshape(-1))
        _reduce_locally(plan, tensor, stages, reduction)
        return
    memory = _in_and_out(plan, tensor, reduction)
    width = memory.element_size()
    for owner, (first, end) in shards(memory.numel(), members.size, width, plan.turn):
        address = memory.data_ptr() + first * width
        plan.add(
            plan.slot(part, owner),
            members.all,
            members.all,
            home=owner,
            size=(end - first) * width,
            numbers=numbers,
            send=address,
            receive=address,
        )


def _in_and_out(plan: Plan, tensor: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    """Return memory with the tensor's values, which receives the result."""
    plan.then(lambda: reduction.finish(memory, plan.members.size))
    memory = plan.land(tensor, with_values=True).memory
    return memory


def reduce(plan: Plan, part: int, tensor: torch.Tensor, root: int, reduction: Reduction) -> None:
    """Reduce the contributions to the root's tensor; the other tensors stay."""
    members, numbers = plan.members, reduction.on_engine
    if members.size == 1:
        return
    if numbers is None:
        is_root = members.rank == root
        stages = _stages(plan, tensor) if is_root else []
        gather(plan, part, stages, tensor.detach().reshape(-1), root)
        if is_root:
            _reduce_locally(plan, tensor, stages, reduction)
        return
    is_root = members.rank == root
    memory = _in_and_out(plan, tensor, reduction) if is_root else plan.send(tensor)
    width = memory.element_size()
    for owner, (first, end) in shards(memory.numel(), members.size, width, root):
        address = memory.data_ptr() + first * width
        plan.add(
            (part, owner),
            members.all,
            (root,),
            home=owner,
            size=(end - first) * width,
            numbers=numbers,
            send=address,
            receive=address,
        )


def reduce_scatter(
    plan: Plan,
    part: int,
    output: torch.Tensor,
    sources: Sequence[torch.Tensor],
    reduction: Reduction,
) -> None:
    """Reduce the contributions to each rank's shard; rank i gets that of `sources[i]`."""
    members, numbers = plan.members, reduction.on_engine
    rank = members.rank
    if members.size == 1:
        plan.copy(output, sources[0])
        return
    if numbers is None:
        stages = _stages(plan, output)
        all_to_all(plan, part, stages, [source.detach().reshape(-1) for source in sources])
        _reduce_locally(plan, output, stages, reduction)
        return
    place = None
    for owner, source in enumerate(sources):
        if not source.numel():
            continue
        memory = plan.send(source, output if owner == rank else None)
        receive, size = 0, size_of(memory)
        if owner == rank:
            place = place or _output(plan, output, reduction)
            receive = place.data_ptr()
        plan.add(
            (part, owner),
            members.all,
            (owner,),
            home=owner,
            size=size,
            numbers=numbers,
            send=memory.data_ptr(),
            receive=receive,
        )


def _output(plan: Plan, output: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    plan.then(lambda: reduction.finish(memory, plan.members.size))
    memory = plan.land(output).memory
    return memory
