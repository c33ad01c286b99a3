"""One of the workers that share a GPU: each part checks itself."""

import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterable, List, Union

import torch
from collectives import check_collectives
from machine import Double, Gpu
from torch import nn

import bytescheduler.torch as bps

Machine = Union[Gpu, Double]
Make = Callable[[Any], torch.optim.Optimizer]
STEPS = 4
WIDTH = 64


def adamw(params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW, which crosses with parameters of several devices if it has foreach=False."""
    of_group = list(params)
    one_device = len({param.device for param in of_group}) == 1
    return torch.optim.AdamW(of_group, 0.01, foreach=None if one_device else False)


OPTIMIZERS: Dict[str, Make] = {
    "sgd": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=0.01),
    "adamw": adamw,
}


class _Pause(torch.autograd.Function):
    """Lets backward take its time, as that of a larger layer does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, machine: Machine) -> torch.Tensor:  # noqa: ANN401
        ctx.machine = machine
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # noqa: ANN401
        ctx.machine.busy(ctx.machine.pause_s)
        return gradient.clone(), None


class Model(nn.Module):
    """Layers of which one is left out at times; one of them stays on the CPU if `mixed`."""

    def __init__(self, machine: Machine, mixed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.machine = machine
        names = ("first", "second", "sometimes", "last")
        self.layers = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in names})
        self.layers.to(machine.device)
        self.norm = nn.BatchNorm1d(WIDTH).to(machine.device)
        self.on_cpu = nn.Linear(WIDTH, WIDTH) if mixed else None
        self.takes = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.on_cpu is not None:
            x = self.on_cpu(x)
        x = x.to(self.machine.device)
        for name, layer in self.layers.items():
            if name == "sometimes" and not self.takes:
                continue
            x = _Pause.apply(layer(x).tanh(), self.machine)
        return self.norm(x)


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, WIDTH, generator=generator)


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    return model(batch(step, rank)).square().mean()


def weights(model: nn.Module) -> List[torch.Tensor]:
    states = model.state_dict()  # makes the updates that wait
    return [states[name].clone() for name, _ in model.named_parameters()]


def alone(machine: Machine, make: Make, mixed: bool) -> List[torch.Tensor]:
    """Average the workers' gradients in this process."""
    model = Model(machine, mixed)
    optimizer = make(model.parameters())
    for step in range(STEPS):
        model.takes = step % 3 != 1
        sums: Dict[nn.Parameter, torch.Tensor] = {}
        for rank in range(bps.size()):
            model.zero_grad()
            loss_of(model, step, rank).backward()
            for param in model.parameters():
                if param.grad is not None:
                    grad = param.grad.clone()
                    sums[param] = sums[param] + grad if param in sums else grad
        for param in model.parameters():
            param.grad = sums[param] * (1.0 / bps.size()) if param in sums else None
        optimizer.step()
    return weights(model)


def in_the_job(machine: Machine, make: Make, crossing: bool, mixed: bool) -> List[torch.Tensor]:
    model = Model(machine, mixed)
    machine.let_be_late(model)
    bps.broadcast_parameters(model.state_dict(), 0)
    optimizer = bps.DistributedOptimizer(make(model.parameters()), model=model, crossing=crossing)
    for step in range(STEPS):
        model.takes = step % 3 != 1
        optimizer.zero_grad()
        loss_of(model, step, bps.rank()).backward()
        optimizer.step()
    assert optimizer.crosses == crossing
    trained = weights(model)
    optimizer.close()
    return trained


def check_equal(machine: Machine) -> None:
    for name, make in OPTIMIZERS.items():
        for mixed in (False, True):
            want = alone(machine, make, mixed)
            for crossing in (True, False):
                got = in_the_job(machine, make, crossing, mixed)
                assert all(torch.equal(a, b) for a, b in zip(got, want)), (name, mixed, crossing)
        tell(f"{name}: weights are those of one process")


def check_waits(machine: Machine) -> None:
    """Let the device be busy, and see that backward, step and guards return before it is done."""
    model = Model(machine)
    optimizer = bps.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model=model)
    for step in range(3):  # what is made once has been, and the kernels are loaded
        optimizer.zero_grad()
        loss_of(model, step, bps.rank()).backward()
        optimizer.step()
    optimizer.synchronize()
    batches = [batch(step, bps.rank()).to(machine.device) for step in (3, 4)]
    machine.wait()
    machine.busy(machine.long_s)
    done = machine.mark()
    model(batches[0]).square().mean().backward()
    optimizer.step()
    assert not done(), "backward or step() waited for the device"
    machine.wait()
    bps.barrier()  # all workers have sent their gradients
    time.sleep(machine.long_s)  # all sums have come
    machine.busy(machine.long_s)
    done = machine.mark()
    loss = model(batches[1]).square().mean()
    assert not done(), "a guard waited for the device"
    loss.backward()
    optimizer.step()
    optimizer.synchronize()
    optimizer.close()
    tell("neither hooks nor guards wait for the device")


def check_others(machine: Machine) -> None:
    """Run what else takes tensors of a device."""
    rank, size = bps.rank(), bps.size()
    mine = torch.full((3, 5), float(rank + 1), device=machine.device)
    mean = bps.push_pull(mine, name="mean")
    assert mean.device == mine.device
    assert torch.equal(mean, torch.full_like(mine, (size + 1) / 2))
    bps.broadcast_(mine, 1)
    assert bool((mine == 2).all())
    model = Model(machine)
    inner = OPTIMIZERS["adamw"](model.parameters())
    loss_of(model, 0, rank).backward()
    inner.step()
    bps.broadcast_parameters(model.state_dict(), 1)
    bps.broadcast_optimizer_state(inner, 1)
    states = [s["exp_avg"].double().sum().item() for s in inner.state.values()]
    sums = [value.double().sum().item() for value in weights(model)]
    assert len({str(each) for each in bps.allgather_object((states, sums))}) == 1
    tell("single tensors and broadcasts agree")


def check_scaler(machine: Machine) -> None:
    model = Model(machine)
    optimizer = bps.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model=model)
    scaler = torch.amp.GradScaler(machine.device.type, init_scale=2.0**10, growth_interval=2)
    for step in range(5):
        optimizer.zero_grad()
        loss = loss_of(model, step, bps.rank())
        if step == 2 and bps.rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    optimizer.synchronize()
    found = [value.double().sum().item() for value in weights(model)], scaler.get_scale()
    assert len({str(each) for each in bps.allgather_object(found)}) == 1, found
    assert scaler.get_scale() == 2.0**10 * 2 / 2 * 2, scaler.get_scale()
    optimizer.close()
    tell("GradScaler skips the same step on all workers")


def check_modules(machine: Machine) -> None:
    """Compare our module with PyTorch's own under our hook."""
    rank = bps.rank()
    ours = bps.DistributedDataParallel(Model(machine), device_ids=[0])
    with tempfile.TemporaryDirectory() as folder:
        meeting = bps.broadcast_object(f"file://{folder}/meet")
        torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=bps.size())
        hooked = nn.parallel.DistributedDataParallel(Model(machine))
        hooked.register_comm_hook(None, bps.ddp_hook)
        for ddp in (ours, hooked):
            loss_of(ddp, 0, rank).backward()
        for (name, one), other in zip(ours.named_parameters(), hooked.parameters()):
            assert torch.equal(one.grad, other.grad), name
        bps.barrier()
        torch.distributed.destroy_process_group()
    tell("PyTorch's own module has the means of ours")


def check_backend(machine: Machine) -> None:
    check_collectives(machine)
    tell("calls of torch.distributed have the results of the CPU, and do not wait for the device")


def tell(text: str) -> None:
    sys.stdout.write(f"worker {bps.rank()}: {text}\n")
    sys.stdout.flush()


CHECKS = (check_equal, check_waits, check_others, check_scaler, check_modules, check_backend)


def main() -> None:
    machine: Machine = Double() if "--double" in sys.argv else Gpu()
    bps.init()
    tell(f"PyTorch {torch.__version__}, {machine.name}")
    for check in CHECKS:
        begin = time.monotonic()
        check(machine)
        tell(f"{check.__name__} took {time.monotonic() - begin:.1f} s")
    bps.shutdown()


if __name__ == "__main__":
    main()
