"""Sums, broadcasts and objects of PyTorch's tensors, and what is refused; each worker checks."""

import math
import os
import sys

import torch
from checks import refused, refused_by

import bytescheduler.torch as bps

CODES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]


def before_init() -> None:
    for call in (bps.rank, bps.size, bps.local_rank, bps.local_size):
        refused_by(ValueError, "call init() first", call)
    refused_by(ValueError, "call init() first", bps.push_pull, torch.ones(1))
    assert not bps.initialized()


def sums(rank: int, size: int) -> None:
    for dtype in CODES:
        total = bps.push_pull(torch.full((5,), rank + 1).to(dtype), average=False, name=str(dtype))
        assert torch.equal(total, torch.full((5,), 3).to(dtype)), total
    for _ in range(20):  # more calls than places for tensors without a name
        mean = bps.push_pull(torch.arange(4.0).view(2, 2) * (rank + 1))
        assert torch.equal(mean, torch.arange(4.0).view(2, 2) * 1.5), mean
    assert torch.equal(bps.push_pull(torch.ones(2, dtype=torch.complex64)), torch.ones(2) + 0j)
    assert bps.push_pull(torch.ones(0)).shape == (0,)
    assert bps.push_pull(torch.tensor(float(rank)), op_is(False), "scalar").shape == ()
    narrow = bps.push_pull(torch.ones(3) * (rank + 1), compression=bps.Compression.fp16)
    assert narrow.dtype == torch.float32
    assert torch.equal(narrow, torch.full((3,), 1.5))
    strided = torch.arange(6.0).view(2, 3).t()
    assert torch.equal(bps.allreduce(strided, op=bps.Sum), strided * size)


def op_is(average: bool) -> bool:
    return average


def handles(rank: int) -> None:
    mine = torch.full((3,), float(rank))
    handle = bps.push_pull_async_inplace(mine, average=False, name="in place", priority=3)
    while not bps.poll(handle):
        pass
    assert bps.synchronize(handle) is mine
    assert torch.equal(mine, torch.ones(3))
    refused("once", bps.synchronize, handle)
    refused("no such", bps.poll, 12345)
    many = [bps.allreduce_async(torch.ones(2) * i, name=f"many {i}") for i in range(30)]
    assert [float(bps.synchronize(h)[0]) for h in reversed(many)] == list(range(29, -1, -1))


def reductions(rank: int) -> None:
    for dtype in CODES:
        mine = torch.tensor([rank + 1, 5 - rank]).to(dtype)
        for op, want in ((bps.Min, [1, 4]), (bps.Max, [2, 5]), (bps.Product, [2, 20])):
            assert torch.equal(bps.allreduce(mine, op=op), torch.tensor(want).to(dtype)), op
        assert torch.equal(mine, torch.tensor([rank + 1, 5 - rank]).to(dtype)), "it was changed"
    large = torch.arange(20_000.0).view(100, 200).t() * (1 - 2 * rank)
    numbers = [bps.allreduce_async(large, name=f"least {i}", op=bps.Min) for i in range(3)]
    for number in reversed(numbers):
        assert torch.equal(bps.synchronize(number), -large.abs())
    assert float(bps.allreduce(rank, op=bps.Max)) == 1
    assert bps.allreduce_(large, op=bps.Max) is large
    assert large.min() == 0
    some = bps.grouped_allreduce([torch.full((2,), rank), torch.tensor(rank)], op=bps.Min)
    assert [int(tensor.sum()) for tensor in some] == [0, 0]
    assert bps.allreduce(torch.ones(0), op=bps.Min).shape == (0,)
    # Two kinds of mistakes meet, of any size; the job goes on.
    op = (bps.Min, bps.Max)[rank]
    refused("op=Min, 3 elements of float32", bps.allreduce, torch.ones(3), name="a", op=op)
    count = (3, 30_000)[rank]
    refused("30000 elements", bps.allreduce, torch.ones(count), name="b", op=bps.Min)
    assert float(bps.allreduce(torch.ones(1), name="b", op=bps.Min)) == 1


def gradients(rank: int) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = bps.push_pull(x, average=False, name="differentiable")
    (y * (rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.tensor([3.0, 3.0])), x.grad


def broadcasts(rank: int, size: int) -> None:
    odd = torch.tensor([math.nan, -0.0, 1e-40, math.inf, float(rank)])
    for root in (1, 0, 1):
        mine = {
            "odd": odd.clone() if rank == root else torch.zeros(5),
            "counter": torch.tensor(7 * root if rank == root else -1),
            "flags": torch.tensor([rank == root, False]),
            "half": torch.full((3, 2), float(rank), dtype=torch.bfloat16).t(),
            "large": torch.full((1 << 20,), float(rank), dtype=torch.float64),
            "text": "is left alone",
        }
        bps.broadcast_parameters(mine, root)
        want = odd.clone()
        want[4] = root
        assert torch.equal(mine["odd"].view(torch.int32), want.view(torch.int32)), mine["odd"]
        assert int(mine["counter"]) == 7 * root
        assert mine["flags"].tolist() == [True, False]
        assert bool((mine["half"] == root).all())
        assert bool((mine["large"] == root).all())
    told = bps.broadcast_object({"epoch": 4, "of": rank, "long": "x" * 10000}, root_rank=1)
    assert told == {"epoch": 4, "of": 1, "long": "x" * 10000}
    assert bps.broadcast_object(None) is None
    assert bps.allgather_object(["x"] * (rank + 1)) == [["x"], ["x", "x"]]
    refused("want 0 to 1", bps.broadcast_object, 1, root_rank=size)
    refused("has no names", bps.broadcast_parameters, [torch.ones(1)])


def optimizer_states(rank: int) -> None:
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS):
        torch.manual_seed(rank)
        model = torch.nn.Linear(4, 3)
        numbers = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(model.parameters(), lr=0.1 + rank, **numbers)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()  # noqa: B023
            value = model(torch.ones(2, 4)).square().sum()  # noqa: B023
            value.backward()
            return value

        if rank == 1:  # the other one has no state yet
            optimizer.step(loss)
        bps.broadcast_optimizer_state(optimizer, root_rank=1)
        states = bps.allgather_object(optimizer.state_dict())
        assert optimizer.param_groups[0]["lr"] == 1.1
        assert str(states[0]) == str(states[1]), states


def bad_input(rank: int) -> None:
    refused("average=False", bps.push_pull, torch.ones(2, dtype=torch.int32))
    refused("cannot sum torch.bool", bps.push_pull, torch.ones(2, dtype=torch.bool), name="flag")
    refused("to_dense", bps.push_pull, torch.eye(2).to_sparse(), name="eye")
    refused("'named': 3 elements", two_sizes)
    refused("contradict", bps.allreduce, torch.ones(1), average=True, op=bps.Sum)
    refused("want Average or Sum", bps.allreduce, torch.ones(1), op="adasum")
    refused("leave them out", bps.allreduce, torch.ones(1), op=bps.Max, average=False)
    refused("leave them out", bps.allreduce, torch.ones(1), op=bps.Max, prescale_factor=2.0)
    refused("only sums", bps.allreduce, torch.ones(1), op=bps.Min, compression="fp16")
    refused("no gradient", bps.allreduce, torch.ones(1, requires_grad=True), op=bps.Min)
    refused("view_as_real", bps.allreduce, torch.ones(1) + 1j, op=bps.Product)


def two_sizes() -> None:
    bps.push_pull(torch.ones(2), name="named")
    bps.push_pull(torch.ones(3), name="named")


def main() -> None:
    before_init()
    bps.init()
    bps.init(lazy=True)
    rank, size = bps.rank(), bps.size()
    assert (bps.local_rank(), bps.local_size(), size) == (rank, size, 2)
    sums(rank, size)
    handles(rank)
    reductions(rank)
    gradients(rank)
    broadcasts(rank, size)
    optimizer_states(rank)
    bad_input(rank)
    bps.barrier()
    bps.shutdown()
    bps.shutdown()
    refused_by(ValueError, "has left the job", bps.rank)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        bps.init()
        handles(rank)
        bps.shutdown()
    else:
        refused("a process joins one job", bps.init)
    assert "mxnet" not in sys.modules
    print("all is well")


main()
