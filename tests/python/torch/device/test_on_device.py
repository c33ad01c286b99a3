"""Sums that NCCL makes: the engine gets addresses of a device, and nothing is copied."""

from typing import Any, List, Optional

import pytest
import torch
from fake_device import FakeDevices
from fake_job import FakeJob
from inline_snapshot import snapshot
from torch import nn

from bytescheduler._session.rounds import RoundCall
from bytescheduler.errors import PeerLost, UsageError
from bytescheduler.torch._device import on_device
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.on_device import OnDevice
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._sums.choice import choice_of
from bytescheduler.torch._sums.compression import Compression
from bytescheduler.torch._sums.passage import Passage
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
    if "choice" not in options:  # it reads the values, which the double lets come later
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
    weights(devices, job_of(devices), choice=choice_of(Compression.fp16, None))
    assert devices.copies == 0
    weights(devices, job_of(devices), choice=choice_of(Compression.two_bit(), None))
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


def test_a_mean_can_be_asked_for_again_as_memory_may_be_short() -> None:
    devices = FakeDevices(5)
    job = job_of(devices)
    source = torch.tensor([[2.0, 4.0], [6.0, 8.0]]).t()
    sums = OnDevice(devices.device, source)
    for _ in range(2):
        sums.start(job.session, 7, source, RoundCall(average=True)).wait()
        first = sums.finish()
        again = sums.finish()
        assert torch.equal(first, source)  # the other worker has the same
        assert again.data_ptr() == first.data_ptr()
        assert again.stride() == source.stride()
        assert torch.equal(again, source)


def test_a_sum_begins_in_inference_mode_and_ends_outside() -> None:
    devices = FakeDevices(6)
    job = job_of(devices)
    sums = TensorSums(job.session, job.devices)
    with torch.inference_mode():
        tensor = torch.arange(3.0)
        mean, total = (sums.start(tensor, Call(each, str(each))) for each in (True, False))
    result = sums.finish(mean)
    assert torch.equal(result, tensor)
    assert not result.is_inference()
    with torch.inference_mode():
        assert torch.equal(sums.finish(total), tensor * 2)


def test_memory_of_a_round_that_failed_is_never_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: List[Any] = []
    monkeypatch.setattr(on_device, "_KEPT", kept)
    devices = FakeDevices(7)
    job = job_of(devices)
    tensor = torch.ones(3)
    for name in ("well", "failed"):
        sums = OnDevice(devices.device, tensor)
        pending = sums.start(job.session, 7, tensor, RoundCall())
        devices.runtime.run_until(lambda: not devices.runtime.has_work)
        job.session.names[7], job.session.arrived = name, [name]
        job.session.failure = None if name == "well" else PeerLost("worker 1 was lost", 4)
        assert not kept
        del pending
    ((sent, received),) = kept
    assert sent.data_ptr() == tensor.data_ptr()
    assert received.nbytes() == 12


def test_the_first_value_of_a_key_is_not_kept() -> None:
    devices = FakeDevices(8)
    job = job_of(devices)
    passage = Passage(Compression.none, devices.device, sums_there=True)
    tensor = torch.ones(3)
    assert torch.equal(passage.make_room(tensor), torch.zeros(3))
    passage.start(job.session, 7, tensor, RoundCall()).wait()
    assert passage.received is None
    assert torch.equal(passage.result(), tensor * 2)


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
