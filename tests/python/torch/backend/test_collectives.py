"""Each collective gives every rank its values, whatever sizes, dtypes and strides."""

from typing import Any, Callable, Iterator, List

import pytest
import torch
import torch.distributed as dist
from fake_exchanges import Ranks
from fake_stagings import FakeStagings

from bytescheduler.torch._backend.group import Group

Shape = Any  # a tuple of numbers
Options = Any  # c10d's
SIZES = (1, 2, 3)
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
)
SHAPES = ((), (0,), (5,), (3, 4), (130, 67))


@pytest.fixture(params=[*SIZES, "on devices"])
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    if request.param == "on devices":
        made = Ranks(2, stagings=[FakeStagings(seed) for seed in range(2)])
    else:
        made = Ranks(request.param)
    yield made
    made.close()


def value(rank: int, shape: Shape, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    torch_rng = torch.Generator().manual_seed(100 * rank + salt)
    numbers = torch.randint(-3 if dtype.is_signed else 0, 4, shape, generator=torch_rng)
    return numbers.to(dtype)


def reduced(values: List[torch.Tensor], name: str) -> torch.Tensor:
    """Return the result of an operation in the order of ranks."""
    combine = {
        "SUM": torch.add,
        "AVG": torch.add,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "PRODUCT": torch.mul,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }[name]
    total = values[0].clone()
    for item in values[1:]:
        total = combine(total, item)
    if name != "AVG":
        return total
    mode = None if total.is_floating_point() else "trunc"
    return torch.div(total, len(values), rounding_mode=mode)


def options(kind: Options, **fields: object) -> Options:
    made = kind()
    for name, field in fields.items():
        setattr(made, name, field)
    return made


def is_for(name: str, dtype: torch.dtype) -> bool:
    """Return whether PyTorch has the operation on this dtype."""
    if name.startswith("B"):
        return not dtype.is_floating_point
    return name != "AVG" or dtype != torch.bool


OPERATIONS = ("SUM", "MIN", "MAX", "PRODUCT", "BAND", "BXOR", "AVG")


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, d) for name in OPERATIONS for d in DTYPES if is_for(name, d)]
)
def test_all_reduce(ranks: Ranks, name: str, dtype: torch.dtype) -> None:
    for salt, shape in enumerate(SHAPES):

        def call(rank: int, group: Group, shape: Shape = shape, salt: int = salt) -> torch.Tensor:
            tensor = value(rank, shape, dtype, salt)
            opts = options(dist.AllreduceOptions, reduceOp=getattr(dist.ReduceOp, name))
            group.allreduce([tensor], opts).wait()
            return tensor

        expected = reduced([value(rank, shape, dtype, salt) for rank in range(ranks.size)], name)
        for got in ranks.well(call):
            assert torch.equal(got, expected), (shape, got, expected)
        ranks.job.rounds.clear()  # each run has groups of the same names


def test_shards_of_large_tensors_are_shared_by_all_ranks() -> None:
    ranks = Ranks(2)

    def call(rank: int, group: Group) -> torch.Tensor:
        tensor = torch.arange(100_000.0) * (rank + 1)
        group.allreduce([tensor]).wait()
        return tensor

    for got in ranks.well(call):
        assert torch.equal(got, torch.arange(100_000.0) * 3)
    homes = {meeting.exchange.home for meeting in ranks.job.rounds.values()}
    assert homes == {0, 1}
    assert len(ranks.job.rounds) == 2  # the ranks meet in a shard
    ranks.close()


def test_reduce_scatter_sends_no_shard_twice() -> None:
    ranks = Ranks(3)

    def call(rank: int, group: Group) -> torch.Tensor:
        output = torch.empty(7000)
        group.reduce_scatter_single(output, torch.ones(21000) * (rank + 1)).wait()
        return output

    assert all(torch.equal(got, torch.full((7000,), 6.0)) for got in ranks.well(call))
    assert set(ranks.job.bytes_given.values()) == {21000 * 4}
    ranks.close()


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values in memory with gaps."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


Layout = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("layout", [plain, strided])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool])
def test_all_other_collectives(ranks: Ranks, dtype: torch.dtype, layout: Layout) -> None:
    size = ranks.size
    every = [value(rank, (4, 3), dtype) for rank in range(size)]

    def call(rank: int, group: Group) -> None:
        own = layout(every[rank])
        root = size - 1

        tensor = layout(own)
        group.broadcast([tensor], options(dist.BroadcastOptions, rootRank=root)).wait()
        assert torch.equal(tensor, every[root])

        outputs = [layout(torch.zeros_like(own)) for _ in range(size)]
        work = group.allgather([outputs], [own])
        work.wait()
        assert all(map(torch.equal, outputs, every))
        assert work.result() == outputs

        whole = torch.zeros(4 * size, 3).to(dtype)
        group._allgather_base(whole, own).wait()
        assert torch.equal(whole, torch.cat(every))

        wholes, halves = [torch.zeros_like(whole) for _ in "ab"], [own, own]
        group.allgather_into_tensor_coalesced(wholes, halves).wait()
        assert all(torch.equal(each, whole) for each in wholes)

        lists = [[torch.zeros_like(own) for _ in "ab"] for _ in range(size)]
        group.allgather_coalesced(lists, [own, own]).wait()
        assert all(torch.equal(lists[peer][1], every[peer]) for peer in range(size))

        outputs = [torch.zeros_like(own) for _ in range(size)]
        to_root = options(dist.GatherOptions, rootRank=root)
        group.gather([outputs] if rank == root else [], [own], to_root).wait()
        assert rank != root or all(map(torch.equal, outputs, every))

        tensor = layout(torch.zeros_like(own))
        from_root = options(dist.ScatterOptions, rootRank=root)
        group.scatter([tensor], [every] if rank == root else [], from_root).wait()
        assert torch.equal(tensor, own)

        outputs = [torch.zeros_like(own) for _ in range(size)]
        sources = [layout((own.int() + peer).to(dtype)) for peer in range(size)]
        group.alltoall(outputs, sources).wait()
        expected = [(every[peer].int() + rank).to(dtype) for peer in range(size)]
        assert all(map(torch.equal, outputs, expected))

        tensor = layout(own)
        to_one = options(dist.ReduceOptions, rootRank=root, reduceOp=dist.ReduceOp.MAX)
        group.reduce([tensor], to_one).wait()
        assert torch.equal(tensor, reduced(every, "MAX") if rank == root else own)

        least = options(dist.ReduceScatterOptions, reduceOp=dist.ReduceOp.MIN)
        tensor = layout(torch.zeros_like(own))
        group.reduce_scatter([tensor], [[own] * size], least).wait()
        assert torch.equal(tensor, reduced(every, "MIN"))

        tensor = torch.zeros_like(own)
        group._reduce_scatter_base(tensor, torch.cat([own] * size), least).wait()
        assert torch.equal(tensor, reduced(every, "MIN"))

        tensors = [torch.zeros_like(own) for _ in "ab"]
        group.reduce_scatter_tensor_coalesced(tensors, [torch.cat([own] * size)] * 2, least).wait()
        assert all(torch.equal(each, tensor) for each in tensors)

        tensors = [layout(own), own[:2].clone()]
        most = options(dist.AllreduceCoalescedOptions, reduceOp=dist.ReduceOp.MAX)
        group.allreduce_coalesced(tensors, most).wait()
        assert torch.equal(tensors[0], reduced(every, "MAX"))
        assert torch.equal(tensors[1], reduced(every, "MAX")[:2])
        group.barrier().wait()

    ranks.well(call)


def test_all_to_all_of_uneven_rows(ranks: Ranks) -> None:
    size = ranks.size

    def call(rank: int, group: Group) -> None:
        given = [peer + 1 for peer in range(size)]
        source = torch.full((sum(given), 2), float(rank))
        output = torch.zeros(size * (rank + 1), 2)
        group.alltoall_base(output, source, [rank + 1] * size, given).wait()
        assert torch.equal(output[:, 0], torch.arange(float(size)).repeat_interleave(rank + 1))
        even = torch.zeros(size)
        group.alltoall_base(even, torch.arange(float(size)) + 10 * rank, [], []).wait()
        assert torch.equal(even, torch.arange(float(size)) * 10 + rank)

    ranks.well(call)


def test_uneven_all_gather(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        outputs = [torch.zeros(peer) for peer in range(group.size())]  # rank 0 gives nothing
        group.allgather([outputs], [torch.full((rank,), float(rank))]).wait()
        assert all(torch.equal(got, torch.full((at,), float(at))) for at, got in enumerate(outputs))

    ranks.well(call)


def test_a_rank_may_gather_in_place(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        whole = torch.zeros(group.size(), 3)
        whole[rank] = rank + 1
        group.all_gather_single(whole, whole[rank]).wait()
        assert torch.equal(whole[:, 0], torch.arange(1.0, group.size() + 1))
        source = torch.ones(group.size(), 3) * (rank + 1)
        group.reduce_scatter_single(source[rank], source).wait()
        assert source[rank, 0] == sum(range(1, group.size() + 1))

    ranks.well(call)


def test_tensors_of_inference_mode_and_parameters() -> None:
    ranks = Ranks(2)

    def call(rank: int, group: Group) -> None:
        with torch.inference_mode():
            tensor = strided(torch.ones(4))
        group.allreduce([tensor]).wait()
        assert tensor.sum() == 8
        weight = torch.nn.Parameter(torch.ones(2, 3).t())
        group.broadcast([weight], options(dist.BroadcastOptions, rootRank=1)).wait()
        negative = torch._neg_view(torch.ones(3))
        group.allreduce([negative]).wait()
        assert negative.sum() == -6

    ranks.well(call)
    ranks.close()


def test_calls_of_the_group_itself_take_arguments_as_c10d_has_them() -> None:
    ranks = Ranks(2)

    def call(rank: int, group: Group) -> None:
        tensor = torch.tensor([float(rank)])
        group.allreduce(tensor, dist.ReduceOp.MAX).wait()
        assert tensor.item() == 1
        tensor = torch.tensor([float(rank)])
        group.broadcast(tensor, 1).wait()
        assert tensor.item() == 1
        outputs = [torch.zeros(1) for _ in "ab"]
        group.allgather(outputs, tensor).wait()
        assert outputs[0].item() == 1
        assert group.getBackendName() == group.name() == "bytescheduler"
        assert group._device_types == [torch.device("cpu")]

    ranks.well(call)
    ranks.close()
