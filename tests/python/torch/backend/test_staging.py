"""Calls with tensors on a device: they copy late, and start, end and fail as on the CPU."""

import contextlib
import datetime
import gc
import random
import threading
import types
import weakref
from typing import Any, Iterator, List, Sequence, Tuple, Type

import pytest
import torch
from fake_device import FakeRuntime, Work
from fake_exchanges import Ranks, has_a_dropped_sum_behind_a_barrier
from fake_stagings import FakeStagings
from polling import until
from test_aliasing import CALLS, views

from bytescheduler.errors import Closed, ConfigError, Timeout, UsageError
from bytescheduler.torch._backend.devices.staging import Staging, Stagings
from bytescheduler.torch._backend.group import Group
from bytescheduler.torch._engine.wait_order import URGENT

Pair = Tuple[torch.Tensor, torch.Tensor]
Event = Any  # of the double


def on_devices(
    size: int = 2, *, seed: int = 0, timeout_s: float = 20, kind: Type[Staging] = Staging
) -> Ranks:
    stagings = [FakeStagings(size * seed + rank, kind=kind) for rank in range(size)]
    return Ranks(size, seed=seed, timeout_s=timeout_s, stagings=stagings)


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = on_devices()
    yield made
    made.close()


def stop(ranks: Ranks) -> None:
    """Let no device do any work."""
    for stagings in ranks.stagings:
        stagings.runtime.is_slow = True


def go_on(ranks: Ranks) -> None:
    for stagings in ranks.stagings:
        stagings.runtime.is_slow = False


def program(rank: int, group: Group, runtime: FakeRuntime) -> None:
    """Make calls whose tensors are made late, or read late by earlier work."""
    peer = 1 - rank
    for step in range(3):
        tensor = torch.full((40 + step,), float(rank + step))
        runtime.late(tensor)
        group.allreduce([tensor]).wait()
        assert tensor.tolist() == [2.0 * step + 1] * tensor.numel()

        tensor = torch.full((3, 5), rank + 2)
        runtime.late(tensor)
        group.broadcast([tensor], 1).wait()
        assert bool((tensor == 3).all())

        source = torch.arange(8.0) * (rank + 1)
        runtime.late(source)
        output = torch.zeros(4)
        group.reduce_scatter_single(output, source).wait()
        assert torch.equal(output, torch.arange(8.0)[4 * rank : 4 * rank + 4] * 3)

        tensor = torch.full((6,), float(rank))
        runtime.late(tensor)
        sent, received = group.send([tensor], peer, step), torch.full((6,), 7.0)
        seen: List[torch.Tensor] = []
        runtime.current().put(Work(lambda: seen.append(received.clone())))  # noqa: B023
        work = group.recv([received], peer, step)
        until(work.poll)  # the copy to the device may begin
        until(lambda: runtime.advance() or seen)  # noqa: B023
        assert seen[0].tolist() == [7.0] * 6
        work.wait()
        sent.wait()
        assert received.tolist() == [float(peer)] * 6


@pytest.mark.parametrize("seed", range(4))
def test_copies_wait_for_the_work_of_the_device(seed: int) -> None:
    ranks = on_devices(seed=seed)
    ranks.well(lambda rank, group: program(rank, group, ranks.stagings[rank].runtime))
    ranks.close()


class SentTooEarly(Staging):
    def download(self, pairs: Sequence[Pair], begun: Event) -> Event:
        return super().download(pairs, self._down.record_event())


class StartedTooEarly(Staging):
    def download(self, pairs: Sequence[Pair], begun: Event) -> Event:
        super().download(pairs, begun)
        return begun


class ReceivedTooEarly(Staging):
    def upload(self, room: torch.Tensor, target: torch.Tensor, begun: Event) -> None:
        super().upload(room, target, self._up.record_event())


class NotFollowed(Staging):
    def follow(self) -> None:
        pass


class GivenBackTooEarly(Staging):
    def upload(self, room: torch.Tensor, target: torch.Tensor, begun: Event) -> None:
        self._up.wait_event(begun)
        self._runtime.copy(self._up, room, target)


MISTAKES = (SentTooEarly, StartedTooEarly, ReceivedTooEarly, NotFollowed, GivenBackTooEarly)


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_copy_without_its_event_is_found(kind: Type[Staging]) -> None:
    def is_found(seed: int) -> bool:
        ranks = on_devices(seed=seed, timeout_s=0.5, kind=kind)
        outcomes = ranks.run(lambda rank, group: program(rank, group, ranks.stagings[rank].runtime))
        with contextlib.suppress(AssertionError):
            ranks.close()
        return any(isinstance(outcome, Exception) for outcome in outcomes)

    assert any(is_found(seed) for seed in range(20))


@pytest.mark.parametrize("name", CALLS)
def test_inputs_on_a_device_may_lie_in_outputs(name: str) -> None:
    for dtype, seed in ((torch.float32, 1), (torch.int16, 2), (torch.float32, 3)):
        ranks = on_devices(3, seed=seed)

        def call(rank: int, group: Group, seed: int = seed, dtype: torch.dtype = dtype) -> None:
            random_ = random.Random(100 * seed + rank)
            buffer = torch.arange(16).to(dtype) + 100 * rank
            ins, outs = views(random_, buffer), views(random_, buffer)
            apart_ins = [tensor.clone() for tensor in ins]
            apart_outs = [tensor.clone() for tensor in outs]
            CALLS[name](group, apart_ins, apart_outs).wait()
            CALLS[name](group, ins, outs).wait()
            written = {"scatter": 1, "reduce_scatter": 1, "reduce_scatter_tensor": 1}.get(name, 3)
            if name != "gather" or rank == 1:
                assert all(map(torch.equal, outs[:written], apart_outs))

        ranks.well(call)
        ranks.close()


def test_a_call_returns_before_the_device_has_come_to_its_tensors(ranks: Ranks) -> None:
    stop(ranks)
    begun = threading.Barrier(ranks.size)

    def call(rank: int, group: Group) -> None:
        tensor = torch.full((5,), rank + 1.0)
        ranks.stagings[rank].runtime.late(tensor)
        work = group.allreduce([tensor])
        doubled = work.get_future().then(lambda done: done.value()[0] * 2)
        other = group.allreduce([torch.ones(3)])
        assert not work.is_completed()
        assert group.exchanging() == [work, other]
        assert ranks.job.rounds == {}
        begun.wait(10)
        go_on(ranks)
        assert doubled.wait().tolist() == [6.0] * 5
        assert work.wait()
        assert tensor.tolist() == [3.0] * 5
        other.wait()

    ranks.well(call)


def test_a_script_that_asks_for_the_end_has_the_values(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensor = torch.full((5,), rank + 1.0)
        work = group.allreduce([tensor])
        until(work.is_completed)
        assert tensor.tolist() == [3.0] * 5

    ranks.well(call)


def test_a_device_follows_dropped_calls_at_a_barrier(ranks: Ranks) -> None:
    ranks.well(has_a_dropped_sum_behind_a_barrier)


def test_a_callback_may_wait_for_another_call(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        def again(_: object) -> float:
            tensor = torch.ones(3)
            group.allreduce([tensor]).wait()
            return tensor[0].item()

        assert group.allreduce([torch.ones(2)]).get_future().then(again).wait() == 2

    ranks.well(call)


def test_messages_from_any_rank_reach_a_device(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        if rank == 0:
            group.send([torch.full((2,), 4.0)], 1, 9).wait()
            return
        tensor = torch.zeros(2)
        work = group.recv_anysource([tensor], 9)
        work.wait()
        assert tensor.tolist() == [4.0, 4.0]
        assert work._source_rank() == 0

    ranks.well(call)


def test_a_group_of_one_rank_copies_nothing(ranks: Ranks) -> None:
    group = ranks.group(0, (0,), "alone")
    output = torch.zeros(3)
    group.all_gather_single(output, torch.ones(3)).wait()
    group.allreduce([output]).wait()
    assert output.tolist() == [1, 1, 1]
    assert ranks.stagings[0].runtime.copies == 0


def test_tensors_of_the_cpu_are_not_copied() -> None:
    stagings = [FakeStagings(rank, lambda tensor: None) for rank in range(2)]
    ranks = Ranks(2, stagings=stagings)

    def call(rank: int, group: Group) -> None:
        tensor = torch.ones(3)
        group.allreduce([tensor]).wait()
        assert tensor.tolist() == [2, 2, 2]

    ranks.well(call)
    assert [each.runtime.copies for each in stagings] == [0, 0]
    ranks.close()


@pytest.mark.parametrize("place", [None, 1])
def test_tensors_on_several_devices_are_an_error_on_all_ranks(place: "int | None") -> None:
    def place_of(tensor: torch.Tensor) -> "int | None":
        return place if tensor.dtype == torch.float64 else 0

    ranks = Ranks(2, stagings=[FakeStagings(rank, place_of) for rank in range(2)])

    def call(rank: int, group: Group) -> None:
        second = torch.ones(2) if rank else torch.ones(2).double()
        group.allreduce_coalesced([torch.ones(2), second]).wait()

    first, other = ranks.run(call)
    assert isinstance(first, ValueError)
    assert "one call has tensors on cpu and on cpu; move them to one device" in str(first)
    assert isinstance(other, ConfigError)
    assert "which rank 0 refuses: one call has tensors on" in str(other)
    ranks.close()


def test_a_captured_graph_is_refused(ranks: Ranks) -> None:
    ranks.stagings[0].runtime.captures = True
    group = ranks.group(0)
    with pytest.raises(UsageError, match="a CUDA graph is captured"):
        group.allreduce([torch.ones(2)])
    with pytest.raises(UsageError, match="a CUDA graph is captured"):
        group.send([torch.ones(2)], 1)
    ranks.stagings[0].runtime.captures = False


def test_a_device_that_fails_or_stands_still_ends_the_call() -> None:
    ranks = on_devices(timeout_s=0.1)
    stop(ranks)
    group, runtime = ranks.group(0), ranks.stagings[0].runtime
    text = "all_reduce #1 of the default group: the device has not come to its tensors within 0.1 s"
    with pytest.raises(Timeout, match=text):
        group.allreduce([torch.ones(2)]).wait()
    group.set_timeout(datetime.timedelta(seconds=20))
    runtime.failure = RuntimeError("CUDA error: an illegal memory access was encountered")
    for end in (lambda work: work.wait(), lambda work: work.get_future().wait()):
        runtime.failure, failure = None, runtime.failure
        work = group.allreduce([torch.ones(2)])
        runtime.failure = failure
        with pytest.raises(RuntimeError, match="an illegal memory access"):
            end(work)
    assert ranks.job.rounds == {}
    runtime.failure = None
    ranks.close()


def test_a_call_that_ends_before_its_tensors_come_starts_nothing() -> None:
    ranks = on_devices()
    stop(ranks)
    group = ranks.group(0)
    work = group.allreduce([torch.ones(2)])
    group.abort()
    with pytest.raises(Closed, match="rank 0 has destroyed its process group"):
        work.wait()
    go_on(ranks)
    ranks.close()
    assert ranks.job.rounds == {}


def test_a_wait_amid_the_start_makes_exchanges_urgent() -> None:
    for is_amid in (False, True):
        ranks = on_devices()
        stop(ranks)
        group, carrier = ranks.group(0), ranks.carriers[0]
        start = carrier.start_exchange

        def start_and_hurry(*args: Any, start: Any = start, **kwargs: Any) -> Any:  # noqa: ANN401
            ending = start(*args, **kwargs)
            work.hurry()  # noqa: B023
            return ending

        if is_amid:
            carrier.start_exchange = start_and_hurry  # type: ignore[method-assign]
        work = group.allreduce([torch.ones(40_000)])  # a shard a rank
        if not is_amid:
            work.hurry()
        go_on(ranks)
        until(lambda: len(carrier.priorities) == 2)  # noqa: B023
        until(lambda: set(carrier.priorities.values()) == {URGENT})  # noqa: B023
        group.abort()
        ranks.close()


def test_an_end_amid_the_start_quits_its_exchanges() -> None:
    ranks = on_devices()
    group, carrier = ranks.group(0), ranks.carriers[0]
    start = carrier.start_exchange
    quits: List[int] = []

    def start_and_abort(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        ending = start(*args, **kwargs)
        group.abort()
        return ending

    carrier.start_exchange = start_and_abort  # type: ignore[method-assign]
    carrier.quit_exchange = lambda key, reason: quits.append(key)  # type: ignore[method-assign]
    work = group.allreduce([torch.ones(40_000)])
    with pytest.raises(Closed):
        work.wait()
    until(lambda: set(carrier.priorities) <= set(quits))
    ranks.close()


def test_a_call_that_has_ended_keeps_no_tensor_alive(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensors = [torch.ones(4, 2).t(), torch.ones(30_000), torch.ones(3, dtype=torch.int16)]
        works = [group.allreduce([tensor]) for tensor in tensors]
        for work in works:
            work.get_future().wait()
        alive = [weakref.ref(tensor) for tensor in tensors] + [weakref.ref(w) for w in works]
        until(lambda: not ranks.completers[rank]._calls)
        ranks.stagings[rank].synchronize()
        tensors.clear()
        works.clear()
        del work
        until(lambda: not any(item() is not None for item in alive))

    gc.disable()
    try:
        ranks.well(call)
    finally:
        gc.enable()


class OnGpu(types.SimpleNamespace):
    """The two facts of a tensor that say where it lies."""

    is_cpu = False


def test_a_device_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: List[torch.device] = []

    def open_device(device: torch.device) -> FakeRuntime:
        opened.append(device)
        return FakeRuntime(0)

    stagings = Stagings(open_device)
    assert stagings.of(torch.ones(1)) is None
    gpus = [OnGpu(device=torch.device("cuda", at)) for at in (0, 1, 0)]
    found = [stagings.of(gpu) for gpu in gpus]  # type: ignore[arg-type]
    assert found[0] is found[2] is not found[1]
    assert opened == [torch.device("cuda", 0), torch.device("cuda", 1)]
    assert [staging.devices for staging in stagings.opened()] == [[device] for device in opened]
    stagings.close()
    monkeypatch.setattr(torch.version, "hip", "6.0")
    with pytest.raises(UsageError, match="cuda:0, a GPU of AMD"):
        Stagings().of(gpus[0])  # type: ignore[arg-type]
