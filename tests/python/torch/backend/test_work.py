"""The handle of a call: waits, futures, errors, and the end of a group."""

import datetime
import gc
import threading
import weakref
from typing import Iterator, List

import pytest
import torch
import torch.distributed as dist
from fake_exchanges import Ranks, has_a_dropped_sum_behind_a_barrier
from polling import until

from bytescheduler.errors import Closed, Error, PeerLost, Timeout, UsageError
from bytescheduler.torch._backend.group import Group


@pytest.fixture(params=[None, 7])
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    made = Ranks(2, seed=request.param)
    yield made
    made.close()


def test_calls_are_waited_for_in_any_order(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensors = [torch.ones(3) * at for at in range(50)]
        works = [group.allreduce([tensor]) for tensor in tensors]
        for work in reversed(works):
            assert work.wait()
        assert all(torch.equal(got, torch.ones(3) * 2 * at) for at, got in enumerate(tensors))
        assert all(work.is_completed() and work.is_success() for work in works)
        assert works[0].exception() is None

    ranks.well(call)


def test_a_call_that_the_script_drops_ends_before_a_barrier(ranks: Ranks) -> None:
    ranks.well(has_a_dropped_sum_behind_a_barrier)


def test_a_future_has_the_result_and_runs_callbacks(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensor = torch.ones(3)
        work = group.allreduce([tensor])
        future = work.get_future()
        assert work.get_future() is future
        doubled = future.then(lambda done: done.value()[0] * 2)
        assert torch.equal(doubled.wait(), torch.full((3,), 4.0))
        late = group.allreduce([torch.ones(1)])
        late.wait()
        assert late.get_future().wait()[0].item() == 2
        chained = future.then(lambda _: group.allreduce([torch.ones(1)]).wait())
        assert chained.wait()

    ranks.well(call)


def test_a_future_raises_the_error(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        future = group.allreduce([torch.ones(3 + rank)]).get_future()
        with pytest.raises(RuntimeError, match="all_reduce #1 of the default group"):
            future.wait()

    ranks.well(call)


def test_a_call_without_a_future_or_a_thread_that_keeps_it() -> None:
    ranks = Ranks(2)

    def call(rank: int, group: Group) -> None:
        opts = dist.AllreduceOptions()
        opts.asyncOp = False
        tensor = torch.ones(3)
        work = group.allreduce([tensor], opts)
        assert work.wait()
        assert tensor[0] == 2

    ranks.well(call)
    assert [completer._threads for completer in ranks.completers] == [[], []]
    ranks.close()


def test_the_time_of_a_wait(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        if rank == 0:
            work = group.allreduce([torch.ones(3)])
            with pytest.raises(Timeout, match=r"all_reduce #1 .* has not ended after 0.05 s"):
                work.wait(datetime.timedelta(milliseconds=50))
            waits.set()
            assert work.wait()
        else:
            assert waits.wait(10)
            group.allreduce([torch.ones(3)]).wait()

    waits = threading.Event()
    ranks.well(call)


def test_abort_ends_a_wait_here_and_on_the_other_rank() -> None:
    ranks = Ranks(3)
    groups: List[Group] = []

    def call(rank: int, group: Group) -> None:
        if rank == 2:
            return  # so that no call ends by itself
        work = group.allreduce([torch.ones(3)])
        if rank == 0:
            groups.append(group)
        else:
            until(lambda: groups)
            group.abort()
        work.wait()

    for error in ranks.run(call)[:2]:
        assert isinstance(error, Closed)
        assert "all_reduce #1 of the default group" in str(error)
        assert "rank 1 has destroyed its process group" in str(error)
    ranks.close()


def test_a_destroyed_group_takes_no_call(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensor = torch.ones(3)
        group.allreduce([tensor])
        group.shutdown()
        assert tensor[0] == 2  # it waited
        with pytest.raises(UsageError, match="all_reduce #2 .* the process group was destroyed"):
            group.allreduce([tensor])

    ranks.well(call)


def test_an_error_of_the_start_is_the_call_s() -> None:
    ranks = Ranks(2)
    ranks.carriers[0].refusal = PeerLost("lost worker 1", 4)
    group = ranks.group(0)
    work = group.allreduce([torch.ones(3)])
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), PeerLost)
    with pytest.raises(PeerLost, match="all_reduce #1 of the default group: lost worker 1"):
        work.wait()
    with pytest.raises(RuntimeError, match="lost worker 1"):
        work.get_future().wait()
    ranks.close()


def test_a_result_that_pytorch_refuses_is_an_error(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        work = group.allreduce([torch.ones(1).expand(3)])  # one element in three places
        with pytest.raises(RuntimeError, match="single memory location"):
            work.wait()

    ranks.well(call)


def test_callbacks_wait_for_futures_of_other_calls(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        def again(depth: int) -> float:
            future = group.allreduce([torch.ones(1)]).get_future()
            if depth:
                future = future.then(lambda _: again(depth - 1))
            result = future.wait()
            return result if depth else result[0].item()

        assert again(4) == 2  # four callbacks wait at once
        threads = [thread.name for thread in threading.enumerate()]
        for _ in range(20):
            group.allreduce([torch.ones(1)]).get_future().wait()
        assert threads.count("bytescheduler-calls") < 2 * 6

    ranks.well(call)


def test_a_barrier_waits_for_no_message(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensor = torch.zeros(2)
        received = group.recv([tensor], 1 - rank)
        group.barrier().wait()
        group.send([torch.full((2,), float(rank))], 1 - rank).wait()
        received.wait()
        assert tensor[0] == 1 - rank

    ranks.well(call)


def test_an_end_between_two_starts_quits_the_later_one() -> None:
    ranks = Ranks(2)
    group = ranks.group(0)
    carrier = ranks.carriers[0]
    start, quits = carrier.start_exchange, []

    def start_and_abort(*args: object, **kwargs: object) -> object:
        ending = start(*args, **kwargs)
        if not group._is_closed:
            group.abort()
        return ending

    carrier.start_exchange = start_and_abort
    carrier.quit_exchange = lambda key, reason: quits.append(key)
    work = group.allreduce([torch.ones(40_000)])  # a shard a rank
    assert isinstance(work.exception(), Closed)
    assert len(quits) == 1
    with pytest.raises(UsageError, match="the process group was destroyed"):
        group.allreduce([torch.ones(1)])
    ranks.close()


def test_a_call_that_has_ended_keeps_no_tensor_alive(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensors = [torch.ones(4, 2).t(), torch.ones(30_000), torch.ones(3, dtype=torch.int16)]
        works = [group.allreduce([tensor]) for tensor in tensors]
        works.append(group.barrier())
        for work in works:
            work.get_future().wait()
        alive = [weakref.ref(tensor) for tensor in tensors] + [weakref.ref(w) for w in works]
        until(lambda: not ranks.completers[rank]._calls)
        tensors.clear()
        works.clear()
        del work
        until(lambda: not any(item() is not None for item in alive))

    gc.disable()
    try:
        ranks.well(call)
    finally:
        gc.enable()


def test_a_group_ends_where_a_callback_ends_it(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        future = group.allreduce([torch.ones(1)]).get_future()
        assert future.then(lambda _: ranks.completers[rank].close() or True).wait()

    ranks.well(call)


def test_messages_keep_their_order(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        tensors = [torch.full((2,), float(at)) for at in range(4)]
        if rank == 0:
            works = [group.send([tensor], 1, at % 2) for at, tensor in enumerate(tensors)]
        else:
            received = [torch.zeros(2) for _ in tensors]
            order = (3, 1, 0, 2)  # tags are apart: messages 1 and 3 have tag 1
            works = [group.recv([received[at]], 0, at % 2) for at in order]
        for work in works:
            work.wait()
        if rank == 1:
            assert [got[0].item() for got in received] == [0, 3, 2, 1]

    ranks.well(call)


def test_a_message_of_another_size_is_an_error(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        if rank == 0:
            group.send([torch.ones(2)], 1, 5)
        else:
            group.recv([torch.zeros(3)], 0, 5).wait()

    error = ranks.run(call)[1]
    assert isinstance(error, Error)
    assert "message with tag 5 from rank 0 to rank 1 #1" in str(error)
    assert "2 elements of float32" in str(error)
    assert "3 elements of float32" in str(error)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_an_empty_message_and_another_one_are_an_error(ranks: Ranks, sizes: List[int]) -> None:
    def call(rank: int, group: Group) -> None:
        tensor = torch.ones(sizes[rank])
        (group.recv([tensor], 0) if rank else group.send([tensor], 1)).wait()

    error = ranks.run(call)[1]
    assert isinstance(error, Error)
    assert "0 elements of float32" in str(error)
    assert "3 elements of float32" in str(error)


def test_an_empty_message_waits_for_its_sender(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        if rank == 0:
            work = group.recv([torch.ones(0)], 1)
            assert not work.is_completed()
            waits.set()
            work.wait()
        else:
            assert waits.wait(10)
            group.send([torch.ones(0)], 0).wait()

    waits = threading.Event()
    ranks.well(call)


def test_a_message_that_is_refused_is_not_counted(ranks: Ranks) -> None:
    wrong = (torch.ones(1).to_sparse(), torch.ones(1, device="meta"), [torch.ones(1)] * 2)

    def call(rank: int, group: Group) -> None:
        move = group.recv if rank else group.send
        for tensors in wrong:
            with pytest.raises(ValueError, match="is sparse|is on meta|2 tensors where"):
                move(tensors if isinstance(tensors, list) else [tensors], 1 - rank)
        for peer in (2, -1):
            with pytest.raises(ValueError, match=f"rank {peer}: the group has the ranks 0 to 1"):
                move([torch.ones(1)], peer)
        tensor = torch.full((1,), float(rank))
        move([tensor], 1 - rank).wait()
        assert tensor.item() == 0

    ranks.well(call)


def test_a_rank_sends_nothing_to_itself(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="a rank sends none to itself"):
        ranks.group(0).send([torch.ones(1)], 0)


@pytest.mark.parametrize("seed", [None, 3])
def test_messages_from_any_rank(seed: "int | None") -> None:
    ranks = Ranks(3, seed=seed)

    def call(rank: int, group: Group) -> None:
        if rank:
            group.send([torch.full((2,), float(rank))], 0, 4).wait()
            group.send([torch.full((2,), float(rank))], 0, 4).wait()
            return
        senders = []
        for _ in range(3):
            tensor = torch.zeros(2)
            work = group.recv_anysource([tensor], 4)
            work.wait()
            assert tensor[1] == work._source_rank() == work.source_rank()
            senders.append(work._source_rank())
        last = torch.zeros(2)
        left = next(rank for rank in (1, 2) if senders.count(rank) == 1)
        group.recv([last], left, 4).wait()
        assert last[0] == left

    ranks.well(call)
    ranks.close()


def test_a_search_for_a_sender_ends_with_time_job_or_group() -> None:
    ranks = Ranks(2, timeout_s=0.1)
    group = ranks.group(0)
    with pytest.raises(Timeout, match="recv from any rank with tag 0 .*no rank has sent"):
        group.recv_anysource([torch.zeros(1)]).wait()
    group.set_timeout(datetime.timedelta(seconds=20))
    ranks.carriers[0].failure = PeerLost("lost worker 1", 4)
    work = group.recv_anysource([torch.zeros(1)])
    with pytest.raises(PeerLost, match="lost worker 1"):
        work.wait()
    ranks.carriers[0].failure = None
    work = group.recv_anysource([torch.zeros(1)])
    group.abort()
    with pytest.raises(Closed, match="has destroyed its process group"):
        work.wait()
    ranks.close()


class BrokenStore:
    """A store whose process is gone; a clone has its own connection."""

    def __init__(self) -> None:
        self.clones = 0

    def clone(self) -> "BrokenStore":
        self.clones += 1
        return self

    def check(self, _: object) -> bool:
        raise RuntimeError("Broken pipe")

    def add(self, *_: object) -> int:
        raise RuntimeError("Broken pipe")


def test_a_store_that_fails_ends_a_search_and_no_other_call(ranks: Ranks) -> None:
    stores = [BrokenStore(), BrokenStore()]

    def call(rank: int, group: Group) -> None:
        group._messages._store = stores[rank]
        searches = [group.recv_anysource([torch.zeros(1)]) for _ in range(2)]
        futures = [search.get_future() for search in searches]
        for future in futures:
            with pytest.raises(RuntimeError, match="the store of torch.distributed.*Broken pipe"):
                future.wait()
        with pytest.raises(PeerLost, match="recv from any rank with tag 0 .*Broken pipe"):
            searches[0].wait()
        assert group.allreduce([torch.ones(1)]).get_future().wait()[0].item() == 2
        tensor = torch.full((1,), float(rank))
        (group.recv if rank else group.send)([tensor], 1 - rank).wait()
        assert tensor.item() == 0

    ranks.well(call)
    assert [store.clones for store in stores] == [1, 1]


def test_the_time_of_a_call_may_be_an_argument() -> None:
    ranks = Ranks(2, timeout_s=60)
    group, short = ranks.group(0), datetime.timedelta(milliseconds=50)
    tensor = torch.ones(2)
    works = [
        group.allreduce(tensor, dist.ReduceOp.SUM, short),
        group.broadcast(tensor, 1, short),
        group.reduce(tensor, 1, dist.ReduceOp.MAX, short),
        group.allgather([tensor, tensor], tensor, short),
        group.allgather([tensor, tensor], tensor, timeout=short),
        group.gather([], tensor, 1, short),
        group.scatter(tensor, [], 1, short),
        group.reduce_scatter(tensor, [tensor] * 2, dist.ReduceOp.SUM, short),
        group.alltoall([tensor] * 2, [tensor] * 2, timeout=short),
        group.alltoall_base(tensor, tensor, [], [], short),
        group.barrier(timeout=short),
        group.barrier(short),
    ]
    for number, work in enumerate(works, 1):
        with pytest.raises(Timeout, match=f"#{number} of the default group"):
            work.wait()
    assert any(
        "reduce #3 of the default group, op MAX to rank 1" in text for text in ranks.job.labels
    )
    ranks.close()


def test_a_group_is_its_own_backend_for_the_devices_that_it_knows() -> None:
    ranks = Ranks(2)
    group = ranks.group(0)
    for kind in ("cpu", "cuda:1"):
        assert group._get_backend(torch.device(kind)) is group
    assert not group.supports_splitting
    with pytest.raises(RuntimeError, match="bytescheduler has no backend for xpu"):
        group._get_backend(torch.device("xpu"))
    ranks.close()
