"""Random programs of collectives over random groups, each call beside Gloo's in the same process.

``programs.py PORT PROGRAMS``: the values of larger groups have exact sums in any order.
"""

import itertools
import random
import sys
import threading
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist
from forked_ranks import fork_ranks, join

RANKS = 4
CALLS = 12
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int32, torch.int64),
)
SHAPES = ((), (0,), (1,), (7,), (3, 5), (64, 33), (2, 0, 3), (40, 1000))
OPERATIONS = ("SUM", "MIN", "MAX", "PRODUCT")
Group = Any  # PyTorch's types are not read
Handle = Any  # a work, or None
Tensors = List[torch.Tensor]


class Call:
    """A call of all ranks of a group, alike on all of them.

    Parameters
    ----------
    random_ : Random
        In the same state on all ranks.
    size : int
        Ranks of the group.
    """

    def __init__(self, random_: random.Random, size: int) -> None:
        self.kind = random_.choice(list(KINDS))
        self.shape = random_.choice(SHAPES)
        self.dtype = random_.choice(DTYPES)
        self.operation = getattr(dist.ReduceOp, random_.choice(OPERATIONS))
        self.root = random_.randrange(size)
        self.asynchronous = random_.random() < 0.7
        self.strided = random_.random() < 0.3
        self.seed = random_.randrange(1 << 30)
        self.rows = [[random_.randrange(4) for _ in range(size)] for _ in range(size)]

    def value(self, rank: int, size: int, salt: int = 0) -> torch.Tensor:
        """Return the value of a rank."""
        generator = torch.Generator().manual_seed(self.seed + 100 * rank + salt)
        if size == 2 and self.dtype.is_floating_point:
            numbers = torch.randn(self.shape, generator=generator, dtype=torch.float64)
        else:
            numbers = torch.randint(0, 3, self.shape, generator=generator)
        return numbers.to(self.dtype)


def spread(tensor: torch.Tensor, strided: bool) -> torch.Tensor:
    """Return the values, in memory with gaps if `strided`."""
    return torch.stack([tensor, tensor], -1)[..., 0] if strided else tensor


# Each gets a group, its own call, whether tensors may have gaps, and whether it is asynchronous.
# It returns a work, or None, and the tensors with the result.
Run = Callable[[Group, Call, bool, bool], Tuple[Any, Tensors]]


def all_reduce(group: Group, call: Call, strided: bool, later: bool) -> Tuple[Any, Tensors]:
    tensor = spread(call.value(group.rank(), group.size()), strided)
    return dist.all_reduce(tensor, call.operation, group, later), [tensor]


def broadcast(group: Group, call: Call, strided: bool, later: bool) -> Tuple[Any, Tensors]:
    tensor = spread(call.value(group.rank(), group.size()), strided)
    work = dist.broadcast(tensor, group=group, async_op=later, group_src=call.root)
    return work, [tensor]


def reduce(group: Group, call: Call, strided: bool, later: bool) -> Tuple[Any, Tensors]:
    tensor = spread(call.value(group.rank(), group.size()), strided)
    work = dist.reduce(tensor, op=call.operation, group=group, async_op=later, group_dst=call.root)
    return work, [tensor] if group.rank() == call.root else []


def all_gather(group: Group, call: Call, strided: bool, later: bool) -> Tuple[Any, Tensors]:
    tensor = spread(call.value(group.rank(), group.size()), strided)
    outputs = [spread(torch.zeros_like(tensor), strided) for _ in range(group.size())]
    return dist.all_gather(outputs, tensor, group, later), outputs


def gather(group: Group, call: Call, strided: bool, later: bool) -> Tuple[Any, Tensors]:
    tensor = spread(call.value(group.rank(), group.size()), strided)
    is_root = group.rank() == call.root
    outputs = [torch.zeros_like(tensor) for _ in range(group.size())] if is_root else []
    work = dist.gather(tensor, outputs or None, group=group, async_op=later, group_dst=call.root)
    return work, outputs


def scatter(group: Group, call: Call, strided: bool, later: bool) -> Tuple[Any, Tensors]:
    size = group.size()
    values = [spread(call.value(group.rank(), size, salt), strided) for salt in range(size)]
    output = spread(torch.zeros_like(values[0]), strided)
    sources = values if group.rank() == call.root else None
    work = dist.scatter(output, sources, group=group, async_op=later, group_src=call.root)
    return work, [output]


def into_tensor(group: Group, call: Call, _: bool, later: bool) -> Tuple[Any, Tensors]:
    tensor = call.value(group.rank(), group.size()).reshape(-1)
    output = torch.zeros(tensor.numel() * group.size(), dtype=call.dtype)
    place = output.chunk(group.size())[group.rank()] if tensor.numel() else tensor
    place.copy_(tensor)  # in place, as FSDP2 calls it
    return dist.all_gather_into_tensor(output, place, group, later), [output]


def reduce_scatter(group: Group, call: Call, _: bool, later: bool) -> Tuple[Any, Tensors]:
    parts = [
        call.value(group.rank(), group.size(), salt).reshape(-1) for salt in range(group.size())
    ]
    output = torch.zeros_like(parts[0])
    work = dist.reduce_scatter_tensor(output, torch.cat(parts), call.operation, group, later)
    return work, [output]


def all_to_all(group: Group, call: Call, _: bool, later: bool) -> Tuple[Any, Tensors]:
    rank, size = group.rank(), group.size()
    sent, received = call.rows[rank], [row[rank] for row in call.rows[:size]]
    source = (torch.arange(2 * sum(sent)).reshape(-1, 2) + 100 * rank).to(call.dtype)
    output = torch.zeros(sum(received), 2, dtype=call.dtype)
    work = dist.all_to_all_single(output, source, received, sent, group, later)
    return work, [output]


KINDS: Dict[str, Run] = {
    "all_reduce": all_reduce,
    "broadcast": broadcast,
    "reduce": reduce,
    "all_gather": all_gather,
    "gather": gather,
    "scatter": scatter,
    "all_gather_into_tensor": into_tensor,
    "reduce_scatter_tensor": reduce_scatter,
    "all_to_all_single": all_to_all,
}


def bits(tensors: Tensors) -> List[bytes]:
    flat = [torch.cat([tensor.reshape(-1)]) for tensor in tensors]  # strides of 1
    return [bytes(tensor.view(torch.uint8).numpy()) for tensor in flat]


def pairs_of_groups(random_: random.Random, gloo: Dict[Any, Group]) -> List[Tuple[Group, Group]]:
    """Return new groups of random ranks, those of this rank, each with Gloo's."""
    pairs = []
    for _ in range(3):
        ranks = tuple(sorted(random_.sample(range(RANKS), random_.randint(1, RANKS))))
        by_ranks = random_.random() < 0.3
        if not by_ranks or dist.get_rank() in ranks:
            group = dist.new_group(list(ranks), use_local_synchronization=by_ranks)
        if dist.get_rank() in ranks:
            pairs.append((group, gloo[ranks]))
    return pairs


def run_calls(own: random.Random, ours: Group, gloo: Group, calls: List[Call]) -> None:
    """Make the calls of one group, and wait for them in an order of this rank's own."""
    under_way: List[Tuple[Any, Tensors, List[bytes], Call]] = []
    for call in calls:
        expected = bits(KINDS[call.kind](gloo, call, False, False)[1])
        work, tensors = KINDS[call.kind](ours, call, call.strided, call.asynchronous)
        under_way.append((work, tensors, expected, call))
        while under_way and (own.random() < 0.3 or under_way[-1][0] is None):
            check(*under_way.pop(own.randrange(len(under_way))))
    own.shuffle(under_way)
    for entry in under_way:
        check(*entry)


def check(work: Handle, tensors: Tensors, expected: List[bytes], call: Call) -> None:
    if work is not None:
        work.wait()
    assert bits(tensors) == expected, (vars(call), tensors)


def run_program(seed: int, gloo: Dict[Any, Group]) -> int:
    """Run a program: some calls in turns, or each group's in a thread of its own."""
    random_ = random.Random(seed)
    own = random.Random(100 * seed + dist.get_rank())
    pairs = pairs_of_groups(random_, gloo)
    faults: List[BaseException] = []

    def body(ours: Group, theirs: Group) -> None:
        # From ranks alone, so that it is alike on all of them.
        members = dist.get_process_group_ranks(ours)
        shared = random.Random(f"{seed} {members}")
        calls = [Call(shared, ours.size()) for _ in range(CALLS)]
        try:
            run_calls(random.Random(own.random()), ours, theirs, calls)
        except BaseException as fault:
            faults.append(fault)

    if random_.random() < 0.3 and len({id(theirs) for _, theirs in pairs}) == len(pairs):
        threads = [threading.Thread(target=body, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for pair in pairs:
            body(*pair)
    if faults:
        raise AssertionError(f"program {seed}") from faults[0]
    for group, _ in pairs:
        dist.destroy_process_group(group)
    return CALLS * len(pairs)


def main(programs: int) -> None:
    join(60)
    gloo = {
        ranks: dist.new_group(list(ranks), backend="gloo")
        for size in range(1, RANKS + 1)
        for ranks in itertools.combinations(range(RANKS), size)
    }
    compared = sum(run_program(seed, gloo) for seed in range(programs))
    dist.barrier()
    dist.destroy_process_group()
    print(f"compared {compared} calls", flush=True)


if __name__ == "__main__":
    ranks = fork_ranks(RANKS, sys.argv[1], lambda _: main(int(sys.argv[2])))
    codes = [ranks.code(rank) for rank in range(RANKS)]
    assert codes == [0] * RANKS, codes
