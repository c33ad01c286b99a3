"""Names and arguments that scripts of Horovod, BytePS and ByteScheduler bring; each checks."""

import math
import os
from typing import List

import torch
from checks import refused, run_all
from torch import nn

import bytescheduler.torch as bps
import bytescheduler.torch.optimizer as by_its_page


def places(rank: int) -> None:
    assert (by_its_page.rank(), by_its_page.size()) == (rank, 2)
    assert (by_its_page.local_rank(), by_its_page.local_size()) == (rank, 2)
    assert (bps.cross_rank(), bps.cross_size(), bps.is_homogeneous()) == (0, 1, True)
    for built in (bps.nccl_built, bps.mpi_built, bps.mpi_threads_supported, bps.gloo_enabled):
        assert built() is False
    assert bps.cuda_built() is (torch.version.cuda is not None)
    refused("BYTESCHEDULER_TIMELINE=/tmp/t.json", bps.start_timeline, "/tmp/t.json")
    os.environ["BYTESCHEDULER_TIMELINE"] = "/tmp/u.json"
    bps.start_timeline("/tmp/t.json")
    del os.environ["BYTESCHEDULER_TIMELINE"]
    bps.stop_timeline()


def numbers(rank: int) -> None:
    for call in (bps.push_pull, bps.allreduce, by_its_page.push_pull):
        mean = call(3.0 + rank)
        assert mean.dtype == torch.float32
        assert mean.shape == ()
        assert float(mean) == 3.5
    assert int(bps.push_pull(3, average=False)) == 6
    assert float(bps.synchronize(bps.push_pull_async(1.0 + rank))) == 1.5
    assert float(bps.synchronize(bps.allreduce_async(1.0 + rank, op=bps.Sum))) == 3.0
    refused("average=False", bps.push_pull, 3)
    refused("cannot sum torch.bool", bps.push_pull, True)
    refused("want a tensor or a number, got str", bps.push_pull, "3.0")
    refused("want a tensor or a number, got list", bps.allreduce_async, [3.0])
    refused("in place: want a tensor", bps.push_pull_inplace, 3.0)
    refused("in place: want a tensor", bps.allreduce_, 3.0)


def scales(rank: int) -> None:
    ours = torch.full((3,), float(rank + 1))
    for call in (bps.allreduce, bps.allreduce_):
        total = call(ours.clone(), op=bps.Sum, prescale_factor=0.5, postscale_factor=4.0)
        assert torch.equal(total, torch.full((3,), 6.0)), total
    half = torch.full((2,), 60000.0, dtype=torch.float16)  # the sum of two is no float16
    assert torch.equal(bps.allreduce(half, op=bps.Sum, prescale_factor=0.5), half)
    narrow = bps.allreduce(
        torch.full((2,), 1e5),
        op=bps.Average,
        prescale_factor=0.125,
        postscale_factor=8.0,
        compression=bps.Compression.fp16,
    )
    assert torch.allclose(narrow, torch.full((2,), 1e5), rtol=1e-3)
    x = ours.clone().requires_grad_()
    bps.allreduce(x, op=bps.Sum, prescale_factor=0.5, postscale_factor=3.0).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 3.0))
    whole = torch.ones(2, dtype=torch.int64)
    refused("scale floats, got torch.int64", bps.allreduce, whole, op=bps.Sum, prescale_factor=2.0)


def groups(rank: int) -> None:
    def some() -> List[torch.Tensor]:
        return [torch.full((n + 1,), float(rank + n)) for n in range(4)]

    want = [torch.full((n + 1,), n + 0.5) for n in range(4)]
    for name in (None, "a group"):
        for done in (
            bps.grouped_allreduce(some(), name=name),
            bps.synchronize(bps.grouped_allreduce_async(some(), name=name)),
        ):
            assert all(torch.equal(a, b) for a, b in zip(done, want)), done
        ours = some()
        handle = bps.grouped_allreduce_async_(ours, name=name, op=bps.Average)
        while not bps.poll(handle):
            pass
        assert all(a is b for a, b in zip(bps.synchronize(handle), ours))
        assert all(torch.equal(a, b) for a, b in zip(ours, want))
    assert all(
        torch.equal(a, b * 4)
        for a, b in zip(bps.grouped_allreduce_(some(), op=bps.Sum, postscale_factor=2.0), want)
    )
    x = torch.ones(2, requires_grad=True)
    one, other = bps.grouped_allreduce([x, x * 2], op=bps.Sum)
    (one + other).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 6.0))
    assert bps.grouped_allreduce([]) == []
    refused("once", bps.synchronize, handle)
    refused("want a list of tensors, got Tensor", bps.grouped_allreduce, torch.ones(2))
    refused("want a list of tensors", bps.grouped_allreduce_async, [1.0])


def broadcasts(rank: int) -> None:
    odd = torch.tensor([math.nan, -0.0, 1e-40, math.inf])
    for root in (0, 1):
        ours = odd if rank == root else torch.full((4,), 7.0)
        handles = {name: bps.broadcast_async(ours, root, name) for name in _names("ab", rank)}
        for name in _names("ba", rank):  # in another order on each worker
            got = bps.synchronize(handles[name])
            assert torch.equal(got.view(torch.int32), odd.view(torch.int32)), got
        assert rank == root or float(ours[0]) == 7.0
        place = torch.full((2, 3), rank, dtype=torch.int64).t()
        assert bps.synchronize(bps.broadcast_async_(place, root_rank=root)) is place
        assert bool((place == root).all())
    refused("want 0 to 1", bps.broadcast_async, odd, 2)
    refused(
        "workers name other roots", lambda: bps.synchronize(bps.broadcast_async(odd, rank, "c"))
    )
    kind = torch.float32 if rank == 0 else torch.int32
    other = torch.zeros(4, dtype=kind)
    handle = bps.broadcast_async(other, 0, "d")
    if rank == 1:
        refused("broadcast d: it is torch.int32 of shape (4,) here", bps.synchronize, handle)
    else:
        bps.synchronize(handle)


def _names(names: str, rank: int) -> str:
    return names if rank == 0 else names[::-1]


def declared(rank: int) -> None:
    bps.byteps_declare_tensor("a tensor of BytePS")
    refused("byteps_compressor_type", bps.byteps_declare_tensor, "x", byteps_compressor_type="topk")
    refused("want a name", bps.byteps_declare_tensor, "")
    for missing in ("TorchState", "alltoall"):
        refused(f"bytescheduler.torch has no {missing}: ", getattr, bps, missing)
    assert not hasattr(bps, "Adasum")


def predivided(rank: int) -> None:
    """Powers of two change no bit."""
    ended = []
    for options in (
        {},
        {"gradient_predivide_factor": 4.0, "num_groups": 2, "staleness": 0},
        {"gradient_predivide_factor": 0.5, "crossing": False, "groups": []},
    ):
        torch.manual_seed(3)
        model = nn.Linear(4, 2)
        optimizer = bps.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1), model=model, **options
        )
        for step in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4) * (rank + step)).square().sum().backward()
            optimizer.step()
        ended.append([value.clone() for value in model.state_dict().values()])
        optimizer.close()
    assert all(torch.equal(a, b) for other in ended[1:] for a, b in zip(ended[0], other)), ended
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), 0.1)
    # Without its factor the sum of these is no float16.
    model.half()
    optimizer = bps.DistributedOptimizer(inner, gradient_predivide_factor=2.0)
    (model.weight.sum() * 40000.0).backward()
    optimizer.synchronize()
    assert torch.equal(model.weight.grad, torch.full((2, 2), 40000.0, dtype=torch.float16))
    optimizer.close()
    for text, options in (
        ("staleness=1", {"staleness": 1}),
        ("want a number above 0", {"gradient_predivide_factor": 0}),
        ("needs op=Average", {"gradient_predivide_factor": 2.0, "op": bps.Sum}),
        ("num_groups or groups", {"num_groups": -1}),
        ("num_groups or groups", {"groups": "all"}),
    ):
        refused(text, bps.DistributedOptimizer, inner, model=model, **options)


def normalised(rank: int) -> None:
    """Batches of other sizes, against one process that has all of them."""
    torch.manual_seed(0)
    whole = torch.randn(7, 3, 4) * 3 + 100
    mine = (whole[:5] if rank == 0 else whole[5:]).clone().requires_grad_()
    every = whole.clone().requires_grad_()
    ours, plain = bps.SyncBatchNorm(3, momentum=0.3), nn.BatchNorm1d(3, momentum=0.3)
    with torch.no_grad():
        for module in (ours, plain):
            module.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    cube = torch.arange(4.0)
    for _ in range(2):
        y, want = ours(mine), plain(every)
        part = want[:5] if rank == 0 else want[5:]
        torch.testing.assert_close(y, part, rtol=1e-4, atol=1e-4)
        (y.pow(3) * cube).sum().backward()
        (want.pow(3) * cube).sum().backward()
    grad = every.grad[:5] if rank == 0 else every.grad[5:]
    torch.testing.assert_close(mine.grad, grad, rtol=1e-3, atol=1e-3)
    total = bps.push_pull(ours.weight.grad, average=False)
    torch.testing.assert_close(total, plain.weight.grad, rtol=1e-3, atol=1e-3)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(ours, name), getattr(plain, name))
    ours.eval(), plain.eval()
    if rank == 0:  # evaluation needs no other worker
        torch.testing.assert_close(ours(whole), plain(whole))
    ours.train()
    assert ours.load_state_dict(plain.state_dict()) is not None
    assert ours(mine.half().float().to(torch.bfloat16)).dtype == torch.bfloat16
    refused("want batches of channels", ours, torch.ones(3))


CHECKS = [places, numbers, scales, groups, broadcasts, declared, predivided, normalised]

run_all(by_its_page, CHECKS, with_rank=True)
