"""Calls that move bytes: broadcast, gather, scatter, and all to all."""

from typing import Sequence, Tuple

import torch

from bytescheduler._session.groups.members import Slot
from bytescheduler.torch._backend.labels import label_of
from bytescheduler.torch._backend.plan import Plan, shards
from bytescheduler.torch._engine.dtypes import size_of

__all__ = ["all_gather", "all_to_all", "broadcast", "gather", "message", "scatter"]


# The slots of messages begin with it; the slots of calls begin with a part, from 0.
_MESSAGE = -1


def _pair(
    plan: Plan, slot: Slot, source: int, taker: int, tensor: torch.Tensor, *, label: str = ""
) -> None:
    """Let a rank send a tensor to another rank; one of them is this rank.

    They meet for an empty tensor too, as the other rank's may not be empty.
    """
    gives = plan.members.rank == source
    memory = plan.send(tensor) if gives else plan.land(tensor).memory
    address = memory.data_ptr()
    plan.add(
        (*slot, source, taker),
        (source,),
        (taker,),
        home=taker,
        label=label,
        size=size_of(memory),
        send=address,
        receive=address,
    )


def broadcast(plan: Plan, part: int, tensor: torch.Tensor, root: int) -> None:
    """Overwrite `tensor` with the root's, a shard by way of each rank."""
    members = plan.members
    if members.size == 1:
        return
    memory = plan.send(tensor) if members.rank == root else plan.land(tensor).memory
    width = memory.element_size()
    for owner, (first, end) in shards(memory.numel(), members.size, width, root):
        address = memory.data_ptr() + first * width
        plan.add(
            (part, owner),
            (root,),
            members.without(root),
            home=owner,
            size=(end - first) * width,
            send=address,
            receive=address,
        )


def all_gather(
    plan: Plan, part: int, outputs: Sequence[torch.Tensor], source: torch.Tensor
) -> None:
    """Write each rank's `source` to all ranks' `outputs`, by rank."""
    rank, members = plan.members.rank, plan.members
    plan.copy(outputs[rank], source)
    for owner, output in enumerate(outputs):
        if members.size == 1 or not output.numel():
            continue
        memory = plan.send(source, output) if owner == rank else plan.land(output).memory
        address = memory.data_ptr()
        plan.add(
            (part, owner),
            (owner,),
            members.without(owner),
            home=owner,
            size=size_of(memory),
            send=address,
            receive=address,
        )


def gather(
    plan: Plan, part: int, outputs: Sequence[torch.Tensor], source: torch.Tensor, root: int
) -> None:
    """Write each rank's `source` to the root's `outputs`, which are empty elsewhere."""
    members = plan.members
    if members.rank != root:
        _pair(plan, (part,), members.rank, root, source)
        return
    plan.copy(outputs[root], source)
    for owner in members.without(root):
        _pair(plan, (part,), owner, root, outputs[owner])


def scatter(
    plan: Plan, part: int, output: torch.Tensor, sources: Sequence[torch.Tensor], root: int
) -> None:
    """Write the root's `sources` to `output`, by rank; they are empty elsewhere."""
    members = plan.members
    if members.rank != root:
        _pair(plan, (part,), root, members.rank, output)
        return
    plan.copy(output, sources[root])
    for taker in members.without(root):
        _pair(plan, (part,), root, taker, sources[taker])


def all_to_all(
    plan: Plan, part: int, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]
) -> None:
    """Write `sources` to the ranks' `outputs`: rank i's j to rank j's i."""
    members, rank = plan.members, plan.members.rank
    plan.copy(outputs[rank], sources[rank])
    for peer in members.without(rank):
        for source, taker, tensor in ((rank, peer, sources[peer]), (peer, rank, outputs[peer])):
            sizes = f"{tensor.numel()} elements from rank {source} to {taker}"
            label = label_of([plan.title, sizes])
            _pair(plan, (part,), source, taker, tensor, label=label)


def message(plan: Plan, tensor: torch.Tensor, route: Tuple[int, int, int]) -> None:
    """Send or receive a message of a route: sender, receiver, tag.

    The plan's number counts messages of the route, and not the calls of the group.
    """
    source, taker, tag = route
    _pair(plan, (_MESSAGE, tag), source, taker, tensor)
