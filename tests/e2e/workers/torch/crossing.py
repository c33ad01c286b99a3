"""Crossing the barrier where it is hard: uses of all kinds, copies, compilers, optimizers."""

import copy
import gc
import os
import pickle
import signal
import sys
import weakref
from typing import Any, Dict, List, Tuple

import torch
from checks import refused, run_all
from models import OPTIMIZERS, Model, loss_of, new_model, same
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import bytescheduler.torch as bps
import bytescheduler.torch.optimizer as by_its_page

Optimizer = Any  # DistributedOptimizer
Option = Any


def usual(model: nn.Module, optimizer: Optimizer, step: int) -> None:
    optimizer.zero_grad()
    loss_of(model, step, bps.rank()).backward()
    optimizer.step()


def weights(model: nn.Module) -> Dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


class Strange(nn.Module):
    """From some step on a module uses the weight of another one, which runs after it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)
        self.borrows = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if self.borrows:
            y = y + nn.functional.linear(y, self.last.weight)
        return self.last(y)


def strange(steps: int, has_model: bool, **options: Option) -> List[Any]:
    """Return weights and what a script sees of them between steps."""
    torch.manual_seed(5)
    model = Strange()
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model=model if has_model else None, **options
    )
    average = torch.optim.swa_utils.AveragedModel(model)
    seen: List[Any] = []
    for step in range(steps):
        model.borrows = step > 2
        optimizer.zero_grad()
        model(torch.ones(2, 4) * (bps.rank() + 1)).square().sum().backward()
        optimizer.step()
        average.update_parameters(model)
        seen.append(model.last.weight.norm().item())
        model.first.weight.data.clamp_(-0.3, 0.3)
    assert optimizer.crosses == (options.get("crossing", "auto") is not False)
    ended = [*seen, weights(model), average.state_dict()]
    optimizer.close()
    return ended


def uses_between_steps() -> None:
    """Averages, norms and clamps see the newest weights, with a model given or not."""
    want = strange(6, True, crossing=False)
    assert all(bool(each.isfinite().all()) for each in want[-1].values())
    assert same(strange(6, True), want)
    assert same(strange(6, False), want)
    assert same(strange(6, False, crossing=True), want)


def order_of_uses() -> None:
    """The first pass shows the order of uses, also in `MultiheadAttention`, with no model given."""
    for has_model in (True, False):
        model = new_model()
        optimizer = bps.DistributedOptimizer(
            OPTIMIZERS["sgd"](model),
            model.named_parameters(),
            model=model if has_model else None,
        )
        usual(model, optimizer, 0)
        slots = {slot.name: slot for slot in optimizer._stepper.gradients.slots}
        order = ["embedding.weight", "conv.weight", "norm.weight", "attention.linear2.weight"]
        places = [slots[name].priority for name in order]
        assert places == sorted(places, reverse=True)
        usual(model, optimizer, 1)
        assert optimizer.crosses
        optimizer.close()


class GlobalNormSGD(torch.optim.SGD):
    """Divides by the norm of all gradients, so one parameter's update depends on the others."""

    def step(self, closure: Option = None) -> None:
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        for grad in grads:
            grad.div_(norm + 1e-6)
        super().step(closure)


def other_optimizers() -> None:
    def run(kind: type, crossing: Option, **numbers: float) -> Tuple[Any, bool]:
        model = new_model()
        inner = kind(model.parameters(), **numbers)
        optimizer = bps.DistributedOptimizer(inner, model=model, crossing=crossing)
        for step in range(3):
            usual(model, optimizer, step)
        ended = weights(model), optimizer.crosses
        optimizer.close()
        return ended

    across = run(GlobalNormSGD, "auto", lr=0.1)
    assert not across[1]
    assert same(across, run(GlobalNormSGD, False, lr=0.1))
    refused("GlobalNormSGD cannot cross the barrier", run, GlobalNormSGD, True, lr=0.0)
    for kind in (torch.optim.NAdam, torch.optim.ASGD, torch.optim.Adafactor):
        assert same(run(kind, True)[0], run(kind, False)[0]), kind


def copies() -> None:
    """A copied or pickled model has no guards, and a state dict has the newest weights."""
    model = new_model()
    optimizer = by_its_page.DistributedOptimizer(
        model, OPTIMIZERS["adam"](model), model.named_parameters(), num_steps=3
    )
    assert optimizer.crosses
    usual(model, optimizer, 0)
    optimizer.synchronize()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same(weights(twin), weights(model))
        loss_of(twin, 0, 0).backward()
    usual(model, optimizer, 1)
    newest = model.attention.state_dict()["linear1.weight"].clone()
    optimizer.synchronize()
    assert torch.equal(newest, model.attention.linear1.weight)
    usual(model, optimizer, 2)
    model.load_state_dict(twin.state_dict())  # no update comes on top of it
    optimizer.synchronize()
    assert same(weights(model), weights(twin))
    optimizer.close()
    refused("cannot cross", by_its_page.CrossBarrier, model, torch.optim.LBFGS(model.parameters()))


def compilers() -> None:
    """Guards break graphs, and the same graphs give the same bits with and without a barrier."""

    def run(whole: bool, waits: bool) -> Dict[str, torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.MultiheadAttention(6, 2), nn.Linear(6, 6))
        net = Attending(model)
        optimizer = bps.DistributedOptimizer(
            torch.optim.Adam(net.parameters(), 0.1, fused=True), model=net, crossing=True
        )
        called: Any = net
        graphs = CompileCounterWithBackend("aot_eager")
        if whole:
            called = torch.compile(net, backend=graphs)
        else:
            model[0].compile(backend=graphs)
        settled = 0  # the number of graphs before the last step
        for step in range(6):
            optimizer.zero_grad()
            called(torch.ones(3, 6) * (step + bps.rank())).square().sum().backward()
            optimizer.step()
            if waits:
                optimizer.synchronize()
            settled = settled if step == 5 else graphs.frame_count
        assert graphs.frame_count > whole, "guards break the graph"
        assert graphs.frame_count == settled, "no graph is made anew"
        ended = weights(net)
        optimizer.close()
        return ended

    for whole in (True, False):
        assert same(run(whole, False), run(whole, True)), whole
    model = nn.Linear(3, 3)
    inner = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = bps.DistributedOptimizer(inner, model=model)
    torch._dynamo.reset()
    full = torch.compile(model, backend="aot_eager", fullgraph=True)
    refused("compile without fullgraph=True", full, torch.ones(1, 3))
    optimizer.close()


class Attending(nn.Module):
    """Attention between two layers."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers[0](x).relu()
        return self.layers[2](self.layers[1](y, y, y)[0])


class Numbers(torch.utils.data.Dataset):
    """What workers of a DataLoader make."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


def forked_loaders() -> None:
    """Forked workers of a DataLoader end well while updates wait."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1e-4), model=model)
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), 3, num_workers=1):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    optimizer.close()


def forked_models() -> None:
    """A forked process that needs a weight whose update waits gets an error, as no round ends."""
    model = nn.Linear(4, 1)
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1e-4), model=model)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a wait
        try:
            refused("this process was forked from a worker", model, torch.ones(1, 4))
        except BaseException as error:  # noqa: B902 - nothing of the parent's runs here
            os.write(2, f"{error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    optimizer.close()


def live_bytes() -> int:
    gc.collect()
    tensors = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in gc.get_objects()
        if isinstance(each, torch.Tensor)
    }
    return sum(tensors.values())


def memory() -> None:
    """Beside weights there is one buffer for sums, and gradients while they are needed."""
    start = live_bytes()
    model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
    size = sum(p.numel() * 4 for p in model.parameters())
    optimizer = bps.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model=model)
    seen: List[int] = []
    for step in range(200):
        model(torch.ones(1, 256)).sum().backward()
        optimizer.step()
        if step % 50 == 49:
            seen.append(live_bytes() - start)
    assert max(seen) == min(seen), seen
    assert seen[0] < 3.2 * size, (seen, size)
    gone = weakref.ref(model[0].weight), weakref.ref(optimizer)
    optimizer.synchronize()
    del model, optimizer
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert live_bytes() - start < size // 2


CHECKS = {
    check.__name__: check
    for check in (uses_between_steps, order_of_uses, other_optimizers, copies, forked_loaders)
}
CHECKS.update({check.__name__: check for check in (forked_models, memory, compilers)})

assert isinstance(new_model(), Model)
run_all(bps, [CHECKS[name] for name in sys.argv[1:] or CHECKS])
