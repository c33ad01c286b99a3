"""torch.distributed over the backend bytescheduler, beside Gloo in the same processes.

`short` makes the table of collectives alone, as under bslaunch.
"""

import contextlib
import datetime
import functools
import itertools
import os
import sys
import tempfile
import threading
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import bytescheduler.torch as bps
from bytescheduler.torch._backend.work import Work

CASE = sys.argv[1]
BACKEND = "bytescheduler"
Anything = Any  # PyTorch's types are not read
SHAPES = ((), (0,), (5,), (3, 4), (2, 50_000))
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
)
Run = Callable[[Anything, torch.Tensor, bool], List[torch.Tensor]]


def ended(work: Optional[Anything], asynchronous: bool) -> None:
    """Wait for an asynchronous call."""
    if asynchronous:
        assert work is not None
        work.wait()


def reduced(name: str) -> Run:
    def run(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
        work = dist.all_reduce(tensor, getattr(dist.ReduceOp, name), group, asynchronous)
        ended(work, asynchronous)
        return [tensor]

    return run


def broadcast(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    ended(dist.broadcast(tensor, group=group, async_op=asynchronous, src=1), asynchronous)
    return [tensor]


def all_gather(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    outputs = [torch.zeros_like(tensor) for _ in range(group.size())]
    ended(dist.all_gather(outputs, tensor, group, asynchronous), asynchronous)
    return outputs


def gather(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    outputs = [torch.zeros_like(tensor) for _ in range(group.size())]
    targets = outputs if group.rank() == 0 else None
    ended(dist.gather(tensor, targets, 0, group, asynchronous), asynchronous)
    return outputs


def scatter(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    output = torch.zeros_like(tensor)
    sources = [tensor, tensor.clone()] if group.rank() == 0 else None
    ended(dist.scatter(output, sources, 0, group, asynchronous), asynchronous)
    return [output]


def reduce(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    ended(dist.reduce(tensor, 0, group=group, async_op=asynchronous), asynchronous)
    return [tensor] if group.rank() == 0 else []


def into_tensor(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    output = torch.cat([torch.zeros_like(tensor).reshape(-1)] * group.size())
    work = dist.all_gather_into_tensor(output, tensor.reshape(-1), group, asynchronous)
    ended(work, asynchronous)
    return [output]


def scattered(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    output = torch.zeros_like(tensor.reshape(-1))
    source = torch.cat([tensor.reshape(-1)] * group.size())
    work = dist.reduce_scatter_tensor(output, source, group=group, async_op=asynchronous)
    ended(work, asynchronous)
    return [output]


def all_to_all(group: Anything, tensor: torch.Tensor, asynchronous: bool) -> List[torch.Tensor]:
    source = torch.cat([tensor.reshape(-1)] * group.size())
    output = torch.zeros_like(source)
    work = dist.all_to_all_single(output, source, group=group, async_op=asynchronous)
    ended(work, asynchronous)
    return [output]


COLLECTIVES: Dict[str, Run] = {
    **{name: reduced(name) for name in ("SUM", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR")},
    "broadcast": broadcast,
    "all_gather": all_gather,
    "gather": gather,
    "scatter": scatter,
    "reduce": reduce,
    "all_gather_into_tensor": into_tensor,
    "reduce_scatter_tensor": scattered,
    "all_to_all_single": all_to_all,
}
# Gloo adds bytes: two that are true give a 2, where a bool has no such value.
BEYOND_GLOO = {("SUM", torch.bool), ("reduce", torch.bool), ("reduce_scatter_tensor", torch.bool)}


def value(shape: Anything, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(dist.get_rank() + 1)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(-100, 100, shape, generator=generator).to(dtype)


def bits(tensors: List[torch.Tensor]) -> List[bytes]:
    return [bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) for tensor in tensors]


def table(ours: Anything, gloo: Anything, shapes: Anything = SHAPES) -> None:
    """Compare each collective with Gloo's, bit for bit, where Gloo has it."""
    compared = missing = 0
    for (name, run), dtype in itertools.product(COLLECTIVES.items(), DTYPES):
        for shape, asynchronous in itertools.product(shapes, (False, True)):
            try:
                with contextlib.redirect_stderr(None):
                    theirs = bits(run(gloo, value(shape, dtype), asynchronous))
            except (RuntimeError, ValueError):
                missing += 1
                continue
            if (name, dtype) in BEYOND_GLOO:
                continue
            assert bits(run(ours, value(shape, dtype), asynchronous)) == theirs, (
                name,
                dtype,
                shape,
            )
            compared += 1
    assert compared > 3 * missing, (compared, missing)
    print(f"compared {compared} calls", flush=True)


def beyond_gloo(rank: int) -> None:
    """What Gloo refuses."""
    tensor = torch.full((3,), rank + 1, dtype=torch.int16)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3, 3, 3]
    tensor = torch.ones(3, 4).t() * (rank + 1)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.equal(tensor, torch.full((4, 3), 1.5))
    outputs = [torch.zeros(2), torch.zeros(5)]
    dist.all_gather(outputs, torch.ones([2, 5][rank]))
    assert outputs[1].sum() == 5


def objects(rank: int) -> None:
    gathered: List[Any] = [None, None]
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank * 1000)})
    assert [item["rank"] for item in gathered] == [0, 1]
    values = [rank, "of rank 1" if rank else None]
    dist.broadcast_object_list(values, 1)
    assert values == [1, "of rank 1"]
    got = [None]
    dist.scatter_object_list(got, ["a", "b"] if rank == 0 else None)
    assert got == ["ab"[rank]]
    dist.gather_object(rank, gathered if rank == 0 else None)
    assert rank or gathered == [0, 1]


def messages(rank: int) -> None:
    peer, tensor = 1 - rank, torch.full((3,), float(rank))
    received = torch.zeros(3)
    operations = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, received, peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert received.sum() == 3 * peer
    if rank:
        dist.send(torch.tensor([7.0]), 0, tag=3)
        dist.send_object_list(["an object"], 0)
    else:
        number = torch.zeros(1)
        assert dist.recv(number, tag=3) == 1
        assert number.item() == 7
        loaded = [None]
        dist.recv_object_list(loaded, 1)
        assert loaded == ["an object"]


def groups(rank: int) -> None:
    alone = [dist.new_group([at]) for at in range(2)][rank]
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=alone)
    assert tensor.sum() == 2
    many = [dist.new_group([1, 0]) for _ in range(3)]
    tensors = [torch.full((2,), float(at)) for at in range(3)]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, many)]
    for work in works[::-1]:
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [0, 2, 4]
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=mesh.get_group("a"))
    dist.all_reduce(tensor, group=mesh.get_group("b"))
    assert tensor.item() == 2
    own, every = dist.new_subgroups(1)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=own)
    assert tensor.item() == 1
    for group in (*many, *every):
        dist.destroy_process_group(group)


def share_that_has_come(elements: int, wait: Callable[[Anything], object]) -> float:
    """Return how much of a large sum is there when `wait` for a small one returns.

    The small one begins behind the large one.
    """
    large, small = torch.ones(elements), torch.ones(3)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in (large, small)]
    wait(works[1])
    sample = large[::1009]  # quickly, as the rest is on its way
    share = (sample == 2).sum().item() / len(sample)
    works[1].wait()
    works[0].wait()
    assert small.sum() == 6
    assert torch.equal(large, torch.full((elements,), 2.0))
    return share


def overtaking() -> None:
    """A call that is waited for goes first, and so does a call whose wait is known."""
    sizes = iter(range(8_000_000, 9_000_000, 1000))  # all unlike
    assert min(share_that_has_come(next(sizes), Work.wait) for _ in range(3)) < 0.5
    hurry, Work.hurry = Work.hurry, lambda _: None  # type: ignore[method-assign]
    assert share_that_has_come(next(sizes), Work.wait) > 0.5, "nothing was in the way"
    Work.hurry = hurry  # type: ignore[method-assign]
    size = next(sizes)

    def wait_for_future(work: Anything) -> None:
        """Wait without a word to the order, so that all goes as it has begun."""
        work.get_future().wait()

    assert share_that_has_come(size, wait_for_future) > 0.5
    shares = []
    for _ in range(3):
        share_that_has_come(size, Work.wait)
        shares.append(share_that_has_come(size, wait_for_future))
    assert min(shares) < 0.5


def functional() -> None:
    from torch.distributed import _functional_collectives as fc

    world = dist.group.WORLD
    assert (fc.all_reduce(torch.ones(2), "sum", world) + 0)[0].item() == 2
    assert (fc.all_gather_tensor(torch.ones(2), 0, world) + 0).shape[0] == 4
    assert (fc.reduce_scatter_tensor(torch.ones(4), "sum", 0, world) + 0)[0].item() == 2
    assert (fc.all_to_all_single(torch.ones(2), None, None, world) + 0).sum().item() == 2
    compiled = torch.compile(
        lambda x: fc.all_reduce(x * 2, "sum", world) + 1, backend="aot_eager", fullgraph=True
    )
    assert compiled(torch.ones(2))[0].item() == 5


def model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )


def train(net: nn.Module, inner: Anything, **options: bool) -> None:
    optimizer = torch.optim.AdamW(inner.parameters(), 0.01)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(20):
        quiet = options.get("no_sync") and step % 2 == 0
        with net.no_sync() if quiet else contextlib.nullcontext():  # type: ignore[operator]
            net(torch.randn(6, 8)).square().mean().backward()
        if not quiet:
            optimizer.step()
            optimizer.zero_grad()


def by_ddp(group: Anything, way: str = "", **options: Anything) -> List[torch.Tensor]:
    inner = model()
    net = nn.parallel.DistributedDataParallel(inner, process_group=group, **options)
    if way == "hook":  # its callbacks wait for futures of further calls
        state = power_sgd.PowerSGDState(group, start_powerSGD_iter=3, min_compression_rate=1)
        net.register_comm_hook(state, power_sgd.powerSGD_hook)
    if way == "join":
        with net.join():
            for _ in range(3 + 2 * dist.get_rank()):
                net(torch.ones(6, 8)).square().mean().backward()
        return [param.grad for param in inner.parameters()]
    called = torch.compile(net, backend="aot_eager") if way == "compiled" else net
    train(called, inner, no_sync=way == "no_sync")
    return [param.detach() for param in inner.parameters()]


def by_fsdp(
    mesh: DeviceMesh, *, accumulates: bool = False, **options: Anything
) -> List[torch.Tensor]:
    net = model()
    for layer in net:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)
    if accumulates:
        for step in range(4):
            net.set_requires_gradient_sync(step % 2 == 1)
            net(torch.full((6, 8), 1.0 + dist.get_rank())).square().mean().backward()
        return [param.grad.full_tensor() for param in net.parameters()]
    train(net, net)
    return [param.full_tensor().detach() for param in net.parameters()]


def checkpoints() -> None:
    """Load what `save` and `async_save` have written; collectives go on beside the latter."""
    net = model()
    fully_shard(net, mesh=DeviceMesh.from_group(dist.group.WORLD, "cpu"))
    saved = bits([param.full_tensor().detach() for param in net.parameters()])
    beside = dist.new_group()

    def save_beside(states: Dict[str, Any], folder: str) -> None:
        future = checkpoint.async_save(states, checkpoint_id=folder, process_group=beside)
        done = torch.tensor(0)
        while done.item() < 2:
            done = torch.tensor(int(future.done()))
            dist.all_reduce(done)
        future.result()

    def save_now(states: Dict[str, Any], folder: str) -> None:
        checkpoint.save(states, checkpoint_id=folder)

    for save in (save_now, save_beside):
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        states = {"model": net.state_dict()}
        save(states, folder[0])
        with torch.no_grad():
            for param in net.parameters():
                param.mul_(0)
        checkpoint.load(states, checkpoint_id=folder[0])
        assert bits([param.full_tensor().detach() for param in net.parameters()]) == saved


def weights(gloo: Anything) -> None:
    """Train to the weights that Gloo gives."""
    world = dist.group.WORLD
    ways: List[Dict[str, Any]] = [
        {},
        {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
        *({"way": way} for way in ("no_sync", "join", "compiled", "hook")),
    ]
    for options in ways:
        assert bits(by_ddp(world, **options)) == bits(by_ddp(gloo, **options)), options
    meshes = [DeviceMesh.from_group(group, "cpu") for group in (world, gloo)]
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    ways = [
        *({"reshard_after_forward": reshard} for reshard in (True, False)),
        {"mp_policy": half},
        {"accumulates": True},
    ]
    for options in ways:
        ours, theirs = (bits(by_fsdp(mesh, **options)) for mesh in meshes)
        assert ours == theirs, options
    plain = bits(by_fsdp(meshes[0]))
    for shape in ((1, 2), (2, 1)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        assert bits(by_fsdp(mesh)) == plain, shape
    checkpoints()
    print("weights are Gloo's", flush=True)


def raised(call: Callable[[], object]) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("there was no error")


def mistakes(rank: int) -> None:
    """Different calls end with an error on both ranks, by every way to a result."""
    first, second = torch.ones(3), torch.ones(4)
    calls: List[Callable[[Anything], object]] = [
        lambda g: dist.all_reduce(first, group=g) if rank else dist.broadcast(first, 0, group=g),
        lambda g: dist.all_reduce(first if rank else second, group=g),
        lambda g: dist.all_reduce(first if rank else first.double(), group=g),
        lambda g: (
            dist.all_reduce(first, group=g, async_op=True).wait() if rank else dist.barrier(group=g)
        ),
        lambda g: (
            dist.all_reduce(first if rank else second, group=g, async_op=True).get_future().wait()
        ),
    ]
    for call in calls:
        group = dist.new_group([0, 1])
        text = raised(functools.partial(call, group))
        assert "#1 of group" in text, text
        assert text.count("all_reduce #") >= 1, text
        assert "worker 0" in text, text
        assert "worker 1" in text, text
        # Each later call fails at once, as ranks may be at different calls now.
        assert "all_reduce #2 of group" in raised(lambda g=group: dist.all_reduce(first, group=g))
    group = dist.new_group([0, 1])
    net = nn.parallel.DistributedDataParallel(model(), process_group=group)
    loss = net(torch.ones(2, 8)).sum()
    odd = dist.all_reduce(torch.ones(5), group=group, async_op=True) if rank else None
    text = raised(loss.backward)
    assert "all_reduce #" in text, text
    assert odd is None or raised(odd.wait)
    group = dist.new_group([0, 1])
    sharded = model()
    fully_shard(sharded, mesh=DeviceMesh.from_group(group, "cpu"))
    odd = dist.all_reduce(torch.ones(5), group=group, async_op=True) if rank else None
    text = raised(lambda: sharded(torch.ones(2, 8)))
    assert "all_gather" in text, text
    assert "worker 0" in text, text
    assert odd is None or raised(odd.wait)
    dist.destroy_process_group()
    dist.init_process_group(BACKEND)
    dist.all_reduce(first)
    print("mistakes are told", flush=True)


def whole() -> None:
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=40))
    rank = dist.get_rank()
    gloo = dist.new_group(backend="gloo")
    table(dist.group.WORLD, gloo)
    beyond_gloo(rank)
    objects(rank)
    messages(rank)
    groups(rank)
    overtaking()
    functional()
    weights(gloo)
    bps.init()  # it shares the job
    assert bps.push_pull(torch.ones(2), average=False, name="beside it").sum() == 4
    mistakes(rank)
    dist.destroy_process_group()
    names = [thread.name for thread in threading.enumerate()]
    assert "bytescheduler-calls" not in names, names
    bps.shutdown()


def short() -> None:
    dist.init_process_group(BACKEND)
    gloo = dist.new_group(backend="gloo")
    table(dist.group.WORLD, gloo, ((3, 4),))
    dist.destroy_process_group()
    dist.init_process_group(BACKEND)  # the job of servers goes on
    objects(dist.get_rank())


def loss() -> None:
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=60))
    tensor = torch.ones(1000)
    for step in itertools.count():
        if step == 5 and dist.get_rank() == 1:
            print("waits", flush=True)
            threading.Event().wait()
        dist.all_reduce(tensor)


if __name__ == "__main__":
    assert c10d.Backend.BYTESCHEDULER == BACKEND
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {"whole": whole, "short": short, "loss": loss}[CASE]()
    print("all is well", flush=True)
