"""Gradients of a device: each copy comes late, and no mistake of order goes unseen."""

import contextlib
import gc
import time
from typing import Any, Callable, Iterator, List, Optional, Tuple

import pytest
import torch
from fake_device import FakeDevices, Wait, Work
from fake_engine import FakeWorker
from fake_job import FakeJob, FakeSession, peeked
from inline_snapshot import snapshot
from torch import nn

from bytescheduler._native import Pending
from bytescheduler._session.rounds import RoundCall, Rounds
from bytescheduler.errors import PeerLost, UsageError
from bytescheduler.torch._device import transit
from bytescheduler.torch._device.cuda import Cuda
from bytescheduler.torch._device.device import Device
from bytescheduler.torch._device.devices import Devices
from bytescheduler.torch._device.driver import Driver
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._gradients.slot import ARMED, IDLE
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._sums.choice import choice_of
from bytescheduler.torch._sums.compression import Compression
from bytescheduler.torch._sums.tensor_sums import Call, TensorSums

STEPS = 4
SEEDS = range(12)
MORE_SEEDS = range(60)


class Model(nn.Module):
    """Three layers, of which one is left out in every other step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.sometimes, self.last = (nn.Linear(3, 3) for _ in range(3))
        self.takes = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.takes:
            x = self.sometimes(x)
        return self.last(x)


def train(model: Model, optimizer: Any) -> None:  # noqa: ANN401
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        model.takes = step % 2 == 0
        optimizer.zero_grad(True)
        model(torch.randn(4, 3, generator=generator)).square().sum().backward()
        optimizer.step(None)


def weights(devices: Optional[FakeDevices], **options: Any) -> List[torch.Tensor]:  # noqa: ANN401
    """Return those after a training in a fake job, or alone."""
    model = Model()
    inner = torch.optim.SGD(model.parameters(), 0.01, momentum=0.5)
    if devices is None:
        train(model, inner)
        return list(model.parameters())
    if "choice" not in options:  # it reads the values, which the double lets come later
        devices.make_late(model.named_parameters())
    job: Any = options.pop("job", None) or FakeJob(devices)
    stepper = Stepper(job, inner, Options(model=model, **options).checked())
    train(model, stepper)
    stepper.synchronize()
    devices.runtime.run_until(lambda: not devices.runtime.has_work)
    stepper.close()
    return list(model.parameters())


def check(devices: FakeDevices, **options: Any) -> None:  # noqa: ANN401
    for one, other in zip(weights(devices, **options), weights(None)):
        assert torch.equal(one, other)


@pytest.mark.parametrize("crossing", [True, False])
def test_weights_equal_the_weights_of_the_plain_optimizer(crossing: bool) -> None:
    for seed in SEEDS:
        check(FakeDevices(seed), crossing=crossing)


def test_parameters_of_both_kinds_train_in_one_model() -> None:
    for seed in SEEDS:
        check(FakeDevices(seed, lambda name: "first" in name))


def test_compressed_gradients_are_narrow_on_their_way() -> None:
    devices = FakeDevices(3)
    job = FakeJob(devices)
    narrow = weights(devices, job=job, choice=choice_of(Compression.bf16, None))
    for one, other in zip(narrow, weights(None)):
        assert torch.allclose(one, other, rtol=0.02, atol=0.01)
    sent = [each.memory for each in job.session.rounds if each.key != job.session.rounds[-1].key]
    assert len(sent) == STEPS * 6  # all but the tallies
    assert {each.dtype for memory in sent for each in memory} == {torch.bfloat16}


# -- mistakes that the double must find ------------------------------------------------------------


class PushedTooEarly(Device):
    def then_call(self, starter: Tuple[int, int], after: Any) -> None:  # noqa: ANN401
        self._runtime.call(self._runtime.stream(), *starter)


class CopiedTooEarly(Device):
    def download(self, source: torch.Tensor, stage: torch.Tensor) -> None:
        self._runtime.copy(self._down, source, stage)


class ReceivedTooEarly(Device):
    def then_call(self, starter: Tuple[int, int], after: Any) -> None:  # noqa: ANN401
        super().then_call(starter, None)


class UpdatedTooEarly(Device):
    def upload(self, stage: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        tensor = self._runtime.empty(self._up, stage)
        self._runtime.copy(self._up, stage, tensor)
        return tensor, self._up.record_event()


class NotLent(Device):
    def upload(self, stage: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        tensor = self._runtime.empty(self._up, stage)
        self._runtime.copy(self._up, stage, tensor)
        event = self._up.record_event()
        self._runtime.current().wait_event(event)
        return tensor, event


def test_memory_that_is_not_lent_is_found() -> None:
    with pytest.raises(AssertionError, match="was not lent"):
        check(FakeDevices(kind=NotLent))


def test_a_mistake_that_is_found_on_a_thread_is_not_lost() -> None:
    def mistake() -> None:
        raise AssertionError("memory was used again")

    runtime = FakeDevices().runtime
    runtime.is_slow = True
    runtime.current().put(Work(mistake))
    stop = runtime.on_a_thread()
    while runtime.failure is None:
        time.sleep(0.001)
    with pytest.raises(AssertionError, match="memory was used again"):
        stop()


@pytest.mark.parametrize(
    "mistake", [PushedTooEarly, CopiedTooEarly, ReceivedTooEarly, UpdatedTooEarly]
)
def test_a_copy_without_its_event_is_found(mistake: Any) -> None:  # noqa: ANN401
    with pytest.raises(AssertionError):  # noqa: PT012 - any seed may find it
        for seed in MORE_SEEDS:
            check(FakeDevices(seed, kind=mistake))


def test_memory_that_is_given_back_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: FakeSession, *given: Any) -> Any:  # noqa: ANN401
        return plain(self, *given[:-1], given[-1]._replace(source=None))

    plain = FakeSession.start
    monkeypatch.setattr(FakeSession, "start", start)
    with pytest.raises(AssertionError, match="given back"):
        one_round(FakeDevices())


def test_only_a_round_that_is_deferred_can_be_started() -> None:
    with pytest.raises(UsageError, match="made with deferred=True"):
        print(Pending.__new__(Pending).starter)


def test_a_round_keeps_its_copied_tensors_alive() -> None:
    one_round(FakeDevices())


def one_round(devices: FakeDevices) -> None:
    session: Any = FakeJob(devices).session
    devices.runtime.is_slow = True
    way = transit.Transit(devices.device, torch.empty(3))
    pending = way.start(session, 1, torch.ones(3) * 2, RoundCall(average=True))
    devices.runtime.run_until(lambda: not devices.runtime.has_work)
    pending.wait()
    assert way.received.tolist() == [2.0, 2.0, 2.0]


# -- waiting ---------------------------------------------------------------------------------------


def crossing_on(devices: FakeDevices) -> Tuple[Model, Any, Stepper]:
    """Return a model on a device, its job, and what steps it across the barrier."""
    model = Model()
    job: Any = FakeJob(devices)
    inner = torch.optim.SGD(model.parameters(), 0.5)
    stepper = Stepper(job, inner, Options(model=model).checked())
    return model, job, stepper


def test_a_guard_waits_for_the_sum_and_not_for_the_device() -> None:
    devices = FakeDevices()
    model, job, stepper = crossing_on(devices)
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    devices.runtime.run_until(lambda: not devices.runtime.has_work)  # all sums are here
    devices.runtime.is_slow = True
    model(torch.ones(1, 3))
    assert devices.runtime.has_work
    assert stepper.gradients.slots[0].state == IDLE  # it was updated


def test_a_hook_waits_for_nothing_and_the_engine_gets_the_gradient_later() -> None:
    devices = FakeDevices()
    model, job, stepper = crossing_on(devices)
    devices.runtime.is_slow = True
    model(torch.ones(1, 3)).sum().backward()
    assert len(job.session.rounds) == 6
    assert not any(each.is_begun for each in job.session.rounds)
    devices.runtime.run_until(lambda: not devices.runtime.has_work)
    assert all(each.is_begun for each in job.session.rounds)
    stepper.close()


def test_a_device_that_fails_ends_a_wait_with_its_error() -> None:
    devices = FakeDevices()
    sums, _ = named_sums(devices)
    devices.runtime.is_slow = True
    handle = sums.start(torch.ones(3), Call(name="one"))
    devices.runtime.failure = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        sums.over(handle)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        sums.finish(handle)


def test_a_device_that_fails_is_told_by_the_guard_that_waits_for_it() -> None:
    devices = FakeDevices()
    model, job, stepper = crossing_on(devices)
    devices.runtime.is_slow = True
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    for slot in stepper.gradients.slots[:2]:
        slot.pending._pending.begin()
    devices.runtime.failure = RuntimeError("CUDA error: an illegal memory access was encountered")
    model.first(torch.ones(1, 3))  # it looks at other sums, and leaves the error to their guards
    with pytest.raises(RuntimeError, match="illegal memory access"):
        model.last(torch.ones(1, 3))


def test_a_stream_that_is_captured_is_not_asked_for_errors() -> None:
    devices = FakeDevices()
    devices.runtime.failure = RuntimeError("CUDA error: operation not permitted when capturing")
    devices.runtime.captures = True
    devices.device.check()


def test_the_end_of_a_job_waits_for_no_device_that_failed() -> None:
    devices = FakeDevices()
    sums, _ = named_sums(devices)
    rounds = Rounds()
    rounds.add(sums)
    devices.runtime.is_slow = True
    sums.start(torch.ones(3), Call(name="one"))
    devices.runtime.failure = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert not rounds.drain()  # the session fails the job then
    assert rounds.pending() == 1


def test_a_wait_for_a_device_ends_when_the_job_fails() -> None:
    devices = FakeDevices()
    sums, job = named_sums(devices)
    devices.runtime.is_slow = True
    handle = sums.start(torch.ones(3), Call(name="one"))
    job.session.failure = PeerLost("lost worker 1", 4)
    with pytest.raises(PeerLost, match="lost worker 1"):
        sums.over(handle)
    with pytest.raises(PeerLost, match="lost worker 1"):
        sums.finish(handle)


def test_the_engine_keeps_all_that_a_copy_reads() -> None:
    class Keeping(FakeWorker):
        def start_push_pull(self, key: int, *where: int, owner: Any, **how: Any) -> None:  # noqa: ANN401
            self.kept = {storage.data_ptr() for storage in owner}

    worker: Any = Keeping()
    session = TorchSession(worker)
    send, recv, source = (torch.ones(2) for _ in range(3))
    session.start(7, send, recv, RoundCall(deferred=True, source=source))
    assert worker.kept == {each.data_ptr() for each in (send, recv, source)}
    session.close()


def test_the_engine_gets_no_address_of_a_device() -> None:
    worker: Any = FakeWorker()
    session = TorchSession(worker)
    session.name(7, "weight")
    for send, recv in (("meta", "cpu"), ("cpu", "meta")):
        tensors = torch.ones(2, device=send), torch.ones(2, device=recv)
        with pytest.raises(UsageError, match="key 'weight': its memory is on meta"):
            session.start(7, *tensors, RoundCall())
    session.close()


def test_a_captured_stream_is_refused_by_name() -> None:
    devices = FakeDevices()
    model = nn.Linear(2, 2)
    job: Any = FakeJob(devices)
    stepper = Stepper(job, torch.optim.SGD(model.parameters(), 0.5), Options().checked())
    sums, other = named_sums(devices)
    devices.runtime.captures = True
    with pytest.raises(UsageError, match="(weight|parameter .): a CUDA graph is captured"):
        model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(UsageError, match="'one'") as raised:
        sums.start(torch.ones(3), Call(name="one"))
    assert str(raised.value) == snapshot(
        "push_pull of 'one': a CUDA graph is captured, and its replays cannot send a gradient "
        "again; capture the model without its backward, or train without graphs"
    )
    assert not job.session.rounds
    assert not other.session.rounds
    stepper.close()


def test_a_module_on_another_stream_waits_for_weights_that_were_taken_along() -> None:
    devices = FakeDevices()
    runtime: Any = devices.runtime
    model, job, stepper = crossing_on(devices)
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    job.session.arrived = list(job.session.names.values())  # sums are there when they are asked for
    runtime.run_until(lambda: not runtime.has_work)
    model.first(torch.ones(1, 3))
    assert [slot.updated is None for slot in stepper.gradients.slots] == [True] * 2 + [False] * 4
    runtime.is_slow = True
    runtime._current = other = runtime.stream()
    model.sometimes(torch.ones(1, 3))
    assert [type(work) for work in other.work] == [Wait] * 2
    stepper.close()


def test_a_weight_of_two_modules_is_awaited_on_the_stream_of_each() -> None:
    devices = FakeDevices()
    runtime: Any = devices.runtime
    model = Model()
    model.last = nn.Linear(3, 3, bias=False)
    model.last.weight = model.first.weight
    job: Any = FakeJob(devices)
    inner = torch.optim.SGD(model.parameters(), 0.5)
    stepper = Stepper(job, inner, Options(model=model).checked())
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    runtime.run_until(lambda: not runtime.has_work)
    model.first(torch.ones(1, 3))  # updates the weight by its own guard
    runtime.is_slow = True
    runtime._current = other = runtime.stream()
    model.last(torch.ones(1, 3))
    assert [type(work) for work in other.work] == [Wait]
    stepper.close()


def test_memory_that_is_short_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = FakeDevices()
    model, job, stepper = crossing_on(devices)
    model(torch.ones(1, 3)).sum().backward()
    stepper.step(None)
    left = [2]

    def empty(*given: Any) -> torch.Tensor:  # noqa: ANN401
        left[0] -= 1
        if left[0] < 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(*given)

    plain = devices.runtime.empty
    monkeypatch.setattr(devices.runtime, "empty", empty)
    before = peeked(model.parameters())
    with pytest.raises(torch.OutOfMemoryError):
        stepper.flush()
    assert all(slot.state == ARMED for slot in stepper.gradients.slots)
    left[0] = 6
    stepper.flush()
    assert not any(torch.equal(*each) for each in zip(before, model.parameters()))
    stepper.close()


# -- single tensors --------------------------------------------------------------------------------


class Worker:
    """Enough of a session for named sums."""

    def __init__(self, job: FakeJob) -> None:
        self._session = job.session

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._session, name)


def named_sums(devices: FakeDevices) -> Tuple[TensorSums, FakeJob]:
    job = FakeJob(devices)
    session: Any = Worker(job)
    return TensorSums(session, job.devices), job  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", [Compression.none, Compression.fp16])
def test_single_tensors_travel_too(compression: Any) -> None:  # noqa: ANN401
    for seed in SEEDS:
        devices = FakeDevices(seed)
        sums, job = named_sums(devices)
        mine = torch.arange(6.0).view(2, 3).t()
        handle = sums.start(mine, Call(False, "one", 0, compression), into=mine)
        want = mine * 2
        is_narrow = compression is not Compression.none
        assert job.session.rounds[0].memory[0].dtype == (torch.half if is_narrow else torch.float)
        assert sums.finish(handle) is mine
        assert torch.equal(mine, want)
        devices.runtime.run_until(lambda: not devices.runtime.has_work)  # noqa: B023


# -- CUDA itself -----------------------------------------------------------------------------------


class Library:
    """Stands for libcuda.so.1."""

    def __init__(self, code: int) -> None:
        self.calls: List[Tuple[int, ...]] = []

        def launch(*given: int) -> int:
            self.calls.append(given)
            return code

        def text(code: int, where: Any) -> None:  # noqa: ANN401
            where._obj.value = b"device is lost"

        self.cuLaunchHostFunc: Any = launch
        self.cuGetErrorString: Any = text


def loads(library: object) -> Any:  # noqa: ANN401
    return {"libcuda.so.1": library}.__getitem__


def test_the_driver_is_called_with_plain_numbers() -> None:
    library = Library(0)
    Driver("weight", loads(library)).launch(11, 22, 33)
    assert library.calls == [(11, 22, 33)]
    with pytest.raises(RuntimeError, match="CUDA error 46 in cuLaunchHostFunc: device is lost"):
        Driver("weight", loads(Library(46))).launch(1, 2, 3)


@pytest.mark.parametrize("library", [None, object()])
def test_a_driver_that_is_missing_or_old_is_a_sentence(library: Optional[object]) -> None:
    def load(name: str) -> Any:  # noqa: ANN401
        if library is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    with pytest.raises(UsageError, match=r"weight: it is on a GPU, and NVIDIA's driver library"):
        Driver("weight", load)


def test_other_devices_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="weight: it is on meta; .* tensor.cpu()"):
        Devices().of(torch.empty(1, device="meta"), "weight")
    assert Devices().of(torch.empty(1), "weight") is None


class Recorded:
    """Stands for a stream of torch.cuda."""

    def __init__(self, name: str, log: List[str]) -> None:
        self.name, self.log = name, log
        self.cuda_stream = 11

    def record_event(self) -> str:
        return f"the end of {self.name}"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")

    def query(self) -> None:
        raise RuntimeError(f"CUDA error on {self.name}")


def recorded_cuda(monkeypatch: pytest.MonkeyPatch, log: List[str]) -> Device:
    """Return a device of CUDA, over a torch.cuda that notes what it is asked."""

    @contextlib.contextmanager
    def within(stream: Recorded) -> Iterator[None]:
        log.append(f"on {stream.name}:")
        yield

    def empty_like(like: torch.Tensor, pin_memory: bool = False, **options: Any) -> torch.Tensor:  # noqa: ANN401
        log.append(f"memory, {pin_memory=}")
        return plain(like, **options)

    plain, names = torch.empty_like, iter(["down", "up"])
    current = Recorded("current", log)
    monkeypatch.setattr(torch, "empty_like", empty_like)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Recorded(next(names), log))
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(log))
    lend = lambda tensor, stream: log.append(f"lent to {stream.name}")  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "record_stream", lend)
    library = Library(0)
    library.cuLaunchHostFunc = lambda *given: log.append(f"calls {given}") or 0
    return Device(Cuda(torch.device("cpu"), Driver("weight", loads(library))))


def test_cuda_asks_pytorch_for_all_that_a_device_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    log: List[str] = []
    device = recorded_cuda(monkeypatch, log)
    device.check_works("weight")  # no graph is captured
    with pytest.raises(RuntimeError, match="CUDA error on current"):
        device.check()
    source = torch.ones(2)
    stage = device.pinned(source)
    device.download(source, stage)
    device.then_call((22, 33), "the end of up")
    tensor, read = device.upload(stage)
    assert torch.equal(tensor, source)
    assert read == "the end of up"
    assert log == [
        *["memory, pin_memory=True", "down waits for the end of current", "on down:"],
        *["down waits for the end of up", "on down:", "calls (11, 22, 33)"],
        *["on up:", "memory, pin_memory=False", "on up:", "current waits for the end of up"],
        "lent to current",
    ]
    with pytest.raises(UsageError, match="weight: a CUDA graph is captured"):
        device.check_works("weight")
    device.check()  # asks nothing then


def test_keys_of_an_optimizer_that_is_garbage_wait_for_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = FakeDevices(3)
    job: Any = FakeJob(devices)
    asked: List[Callable[[], bool]] = []
    monkeypatch.setattr(job.session, "give_back", lambda keys, is_idle: asked.append(is_idle))

    def train_and_drop() -> None:
        model = Model()
        devices.make_late(model.named_parameters())
        inner = torch.optim.SGD(model.parameters(), 0.01)
        stepper = Stepper(job, inner, Options(model=model).checked())
        model(torch.ones(1, 3)).sum().backward()
        del stepper

    train_and_drop()
    job.unflushed.clear()
    gc.collect()
    (is_idle,) = asked
    assert not is_idle()
    devices.runtime.run_until(lambda: not devices.runtime.has_work)
    for pending in job.session.rounds:
        pending.wait()
    devices.runtime.run_until(lambda: not devices.runtime.has_work)
    assert is_idle()
