"""Sums that NCCL makes: the engine gets addresses of a device, and nothing is copied."""

from typing import Any, List, Optional

import pytest
import torch
from fake_device import FakeDevices
from fake_job import FakeJob
from inline_snapshot import snapshot
from torch import nn

from bytescheduler.errors import UsageError
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._sums.compression import Compression
from bytescheduler.torch._sums.tensor_sums import Call, TensorSums

STEPS = 4
SEEDS = range(12)


class Model(nn.Module):
    """Three layers, of which one is left out in every other step."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.sometimes, self.last = (nn.Linear(3, 3, dtype=dtype) for _ in range(3))
        self.takes = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.takes:
            x = self.sometimes(x)
        return self.last(x)


def train(model: Model, optimizer: Any) -> List[torch.Tensor]:  # noqa: ANN401
    generator = torch.Generator().manual_seed(1)
    dtype = model.first.weight.dtype
    for step in range(STEPS):
        model.takes = step % 2 == 0
        optimizer.zero_grad(True)
        model(torch.randn(4, 3, generator=generator).to(dtype)).square().sum().backward()
        optimizer.step(None)
    return list(model.parameters())


def optimizer_of(model: Model) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.5)


def alone(dtype: torch.dtype = torch.float32) -> List[torch.Tensor]:
    model = Model(dtype)
    return train(model, optimizer_of(model))


def job_of(devices: Optional[FakeDevices]) -> Any:  # noqa: ANN401
    job = FakeJob(devices)
    job.session.sums_on_devices = True
    return job


def weights(
    devices: FakeDevices,
    job: Any,  # noqa: ANN401
    dtype: torch.dtype = torch.float32,
    **options: Any,  # noqa: ANN401
) -> List[torch.Tensor]:
    model = Model(dtype)
    if "compression" not in options:  # it reads the values, which the double lets come later
        devices.make_late(model.named_parameters())
    stepper = Stepper(job, optimizer_of(model), Options(model=model, **options).checked())
    trained = train(model, stepper)
    stepper.synchronize()
    devices.runtime.run_until(lambda: not devices.runtime.has_work)
    stepper.close()
    return trained


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_are_as_in_a_single_process(seed: int) -> None:
    for crossing in (True, False):
        devices = FakeDevices(seed)
        for one, other in zip(weights(devices, job_of(devices), crossing=crossing), alone()):
            assert torch.equal(one, other)
        assert devices.copies == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_each_float_is_summed_there(dtype: torch.dtype) -> None:
    devices = FakeDevices(3)
    for one, other in zip(weights(devices, job_of(devices), dtype), alone(dtype)):
        assert torch.equal(one, other)
    assert devices.copies == 0


class Hasty(Device):
    """Calls the engine before the gradient is there."""

    def then_call_here(self, starter: Any) -> None:  # noqa: ANN401
        self._runtime.call(self._down, *starter)


def test_a_call_before_the_gradient_is_there_is_found_out() -> None:
    found = 0
    for seed in SEEDS:
        devices = FakeDevices(seed, kind=Hasty)
        trained = weights(devices, job_of(devices), crossing=False)
        found += not all(torch.equal(one, other) for one, other in zip(trained, alone()))
    assert found > len(SEEDS) // 2


def test_narrow_tensors_are_summed_there_and_codes_by_servers() -> None:
    devices = FakeDevices(1)
    weights(devices, job_of(devices), compression=Compression.fp16)
    assert devices.copies == 0
    weights(devices, job_of(devices), compression=Compression.two_bit())
    assert devices.copies > 0


def test_single_tensors_are_summed_there() -> None:
    devices = FakeDevices(2)
    job = job_of(devices)
    sums = TensorSums(job.session, job.devices)
    tensor = torch.arange(6.0)
    assert sums.finish(sums.start(tensor, Call(True, "mean"))).equal(tensor)
    assert sums.finish(sums.start(tensor, Call(False, "sum"))).equal(tensor * 2)
    assert devices.copies == 0
    whole = torch.arange(6)
    assert sums.finish(sums.start(whole, Call(False, "whole"))).equal(whole * 2)
    assert devices.copies == 2


def test_a_parameter_on_the_cpu_is_refused() -> None:
    model = Model()
    with pytest.raises(UsageError) as caught:
        Stepper(job_of(None), optimizer_of(model), Options(model=model).checked())
    assert str(caught.value) == snapshot(
        "first.weight: it is on the CPU, and BYTESCHEDULER_COMM=nccl sums tensors of GPUs; move it "
        "to this worker's GPU, or set BYTESCHEDULER_COMM=direct"
    )


def test_a_tensor_on_the_cpu_is_refused_unless_servers_sum_it() -> None:
    job = job_of(None)
    sums = TensorSums(job.session, job.devices)
    with pytest.raises(UsageError) as caught:
        sums.start(torch.ones(3), Call(True, "mean"))
    assert str(caught.value) == snapshot(
        "push_pull of 'mean': it is on the CPU, and BYTESCHEDULER_COMM=nccl sums tensors of GPUs; "
        "move it to this worker's GPU, or set BYTESCHEDULER_COMM=direct"
    )
    assert (
        sums.finish(sums.start(torch.ones(3, dtype=torch.int64), Call(False, "whole"))).sum() == 6
    )
