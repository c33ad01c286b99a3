"""Short programs of random collectives over random groups, in any order of their ends."""

import random
from typing import Any, Callable, List, Tuple

import pytest
import torch
from fake_exchanges import Ranks

from bytescheduler.torch._backend.group import Group

PROGRAMS = 50
CALLS = 8
DTYPES = (torch.float32, torch.int64, torch.int16, torch.bool)
Step = Tuple[str, Tuple[int, ...], int, torch.dtype, int]


def program(seed: int, size: int) -> List[Step]:
    """Return calls: kind, ranks, elements, dtype, a root by its place in the group."""
    random_ = random.Random(seed)
    groups = [tuple(range(size))]
    for _ in range(2):
        groups.append(tuple(random_.sample(range(size), random_.randint(2, size))))
    steps = []
    for _ in range(CALLS):
        ranks = random_.choice(groups)
        kind = random_.choice(["all_reduce", "broadcast", "all_gather", "reduce_scatter", "shift"])
        numel = random_.choice([0, 1, 7, 64, 9000])
        root = random_.randrange(len(ranks))
        steps.append((kind, ranks, numel, random_.choice(DTYPES), root))
    return steps


def number(step: int, rank: int) -> int:
    return (step * 7 + rank * 3) % 5


Check = Callable[[], bool]
Handle = Any  # a work


def begin(group: Group, step: int, entry: Step, rank: int) -> Tuple[Any, Check]:
    """Begin a call; return its handle, and a check of its result."""
    kind, ranks, numel, dtype, root = entry
    place = ranks.index(rank)
    own = torch.full((numel,), number(step, rank)).to(dtype)
    numbers = [torch.full((numel,), number(step, peer)).to(dtype) for peer in ranks]
    total = numbers[0].clone()
    for item in numbers[1:]:
        total = torch.add(total, item)
    if kind == "all_reduce":
        return group.allreduce([own]), lambda: torch.equal(own, total)
    if kind == "broadcast":
        return group.broadcast([own], root), lambda: torch.equal(own, numbers[root])
    if kind == "all_gather":
        outputs = [torch.zeros_like(own) for _ in ranks]
        work = group.allgather([outputs], [own])
        return work, lambda: all(map(torch.equal, outputs, numbers))
    if kind == "reduce_scatter":
        output = torch.zeros_like(own)
        return group.reduce_scatter([output], [[own] * len(ranks)]), lambda: torch.equal(
            output, total
        )
    received = torch.zeros_like(own)
    sent = group.send([own], (place + 1) % len(ranks), step)
    work = group.recv([received], (place - 1) % len(ranks), step)
    return _Both(sent, work), lambda: torch.equal(received, numbers[place - 1])


class _Both:
    def __init__(self, *works: Handle) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_program_has_the_results_of_its_collectives(seed: int) -> None:
    random_ = random.Random(seed)
    size = random_.choice([2, 3, 4])
    steps = program(seed, size)
    ranks = Ranks(size, seed=seed)

    def call(rank: int, world: Group) -> None:
        order = random.Random(seed * 100 + rank)
        names = {entry[1] for entry in steps if rank in entry[1]}
        groups = {members: ranks.group(rank, members, str(members)) for members in names}
        under_way: List[Tuple[Any, Check]] = []
        for step, entry in enumerate(steps):
            if rank not in entry[1]:
                continue
            under_way.append(begin(groups[entry[1]], step, entry, rank))
            if order.random() < 0.3:
                wait(under_way.pop(order.randrange(len(under_way))))
        order.shuffle(under_way)
        for handle in under_way:
            wait(handle)
        world.barrier().wait()

    def wait(handle: Tuple[Any, Check]) -> None:
        handle[0].wait()
        assert handle[1]()

    ranks.well(call)
    ranks.close()
