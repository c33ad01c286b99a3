"""One rank whose gradients NCCL sums on the GPU, and two ranks on one GPU, which it refuses."""

import argparse
import os
import pathlib
import sys
import time
from typing import List

import torch
import worker
from machine import Double, Gpu
from torch import nn

import bytescheduler.torch as bps
from bytescheduler.errors import Error
from bytescheduler.torch._job.job import current

STEPS = 12
ELEMENTS = 6 << 20  # of a parameter, whose gradient has several partitions
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def library() -> str:
    """Return the version and the path of the library that this process has."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    paths = sorted({line.split()[-1] for line in lines if "libnccl" in line})
    version = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "fake"
    return f"NCCL {version}, {', '.join(paths) or 'not loaded'}"


def steps_of(machine: worker.Machine, dtype: torch.dtype, elements: int, ours: bool) -> List[float]:
    """Return sums of the weights after each step, which differ where a gradient does."""
    torch.manual_seed(7)
    param = nn.Parameter(torch.randn(elements).to(machine.device, dtype))
    optimizer = torch.optim.SGD([param], 0.1, momentum=0.5)
    if ours:
        optimizer = bps.DistributedOptimizer(optimizer, named_parameters=[("weight", param)])
    factor = torch.linspace(-1, 1, elements).to(machine.device, dtype)
    found = []
    for step in range(STEPS):
        optimizer.zero_grad()
        (param * factor * (step + 1)).sum().backward()
        if ours:
            optimizer.synchronize()
        assert param.grad is not None
        found.append(float(param.grad.double().sum()) + float(param.detach().double().sum()))
        optimizer.step()
    if ours:
        optimizer.close()
    return found


def operations() -> int:
    """Return how many sums NCCL has made for this rank."""
    session = current().get().carrier
    assert session is not None
    rows = {row.name: int(row.value) for row in session._worker.measure()}
    return rows.get("library_operations_total", 0)


def check_sums(machine: worker.Machine, elements: int) -> None:
    for dtype in DTYPES:
        before = operations()
        begin = time.monotonic()
        ours = steps_of(machine, dtype, elements, True)
        took = time.monotonic() - begin
        assert operations() - before >= STEPS, "NCCL has made no sum in some step"
        assert ours == steps_of(machine, dtype, elements, False), dtype
        worker.tell(f"sums of {dtype} are equal, {STEPS} steps done in {took:.2f} s")


def check_models(machine: worker.Machine) -> None:
    for name, make in worker.OPTIMIZERS.items():
        want = worker.alone(machine, make, mixed=False)
        for crossing in (True, False):
            got = worker.in_the_job(machine, make, crossing, mixed=False)
            assert all(torch.equal(a, b) for a, b in zip(got, want)), (name, crossing)
        steps = 2 * worker.STEPS
        worker.tell(f"{name}: sums are equal, {steps} steps done, weights are those of one process")


def check_refusal(machine: worker.Machine) -> None:
    on_cpu = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([on_cpu], 0.1)
    try:
        bps.DistributedOptimizer(optimizer, named_parameters=[("on_cpu", on_cpu)])
    except Error as error:
        worker.tell(f"refused: {error}")
        return
    raise AssertionError("a parameter on the CPU was taken")


def refused_together(machine: worker.Machine) -> int:
    """Return 0 if NCCL does not sum for two ranks with one GPU."""
    try:
        steps_of(machine, torch.float32, 100, True)
    except Error as error:
        worker.tell(f"refused: {error}")
        return 0 if "have tensors on one GPU" in str(error) else 1
    return 1


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    machine: worker.Machine = Double() if options.double else Gpu()
    bps.init()
    if options.together:
        code = refused_together(machine)
        sys.stdout.flush()
        os._exit(code)  # the job has failed
    worker.tell(f"PyTorch {torch.__version__}, {machine.name}")
    check_sums(machine, 3000 if options.double else ELEMENTS)
    worker.tell(library())
    check_models(machine)
    worker.check_waits(machine)
    check_refusal(machine)
    bps.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
