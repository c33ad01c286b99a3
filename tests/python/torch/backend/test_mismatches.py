"""Ranks that make different calls, or a wrong one, all get an error at once."""

import itertools
import re
from typing import Any, Callable, Dict, Iterator

import pytest
import torch
import torch.distributed as dist
from fake_exchanges import Ranks
from inline_snapshot import snapshot

from bytescheduler.errors import Error, PeerLost
from bytescheduler.torch._backend.group import Group

CALLS: Dict[str, Callable[[Group], Any]] = {
    "all_reduce": lambda group: group.allreduce([torch.ones(3)]),
    "all_reduce of another shape": lambda group: group.allreduce([torch.ones(4)]),
    "all_reduce of another dtype": lambda group: group.allreduce([torch.ones(3).int()]),
    "all_reduce of a dtype that PyTorch sums": lambda group: group.allreduce(
        [torch.ones(3, dtype=torch.int16)]
    ),
    "all_reduce of more": lambda group: group.allreduce([torch.ones(30_000)]),
    "all_reduce of nothing": lambda group: group.allreduce([torch.ones(0)]),
    "all_reduce with MAX": lambda group: group.allreduce([torch.ones(3)], dist.ReduceOp.MAX),
    "broadcast": lambda group: group.broadcast([torch.ones(3)], 0),
    "broadcast from another rank": lambda group: group.broadcast([torch.ones(3)], 1),
    "all_gather": lambda group: group.allgather([[torch.ones(3) for _ in "abc"]], [torch.ones(3)]),
    "reduce_scatter": lambda group: group.reduce_scatter_single(torch.ones(1), torch.ones(3)),
    "gather": lambda group: group.gather(
        [[torch.ones(3) for _ in "abc"]] if group.rank() == 0 else [], [torch.ones(3)], 0
    ),
    "scatter": lambda group: group.scatter(
        [torch.ones(3)], [[torch.ones(3) for _ in "abc"]] if group.rank() == 2 else [], 2
    ),
    "all_to_all": lambda group: group.alltoall_base(torch.ones(3), torch.ones(3)),
    "reduce": lambda group: group.reduce([torch.ones(3)], 1),
    "barrier": lambda group: group.barrier(),
}


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks(3, timeout_s=60)
    yield made
    made.close()


@pytest.mark.parametrize(("usual", "odd"), itertools.permutations(CALLS, 2))
def test_different_calls_are_an_error_on_all_ranks(ranks: Ranks, usual: str, odd: str) -> None:
    for odd_rank in (0, 2):
        ranks.job.rounds.clear()

        def call(rank: int, group: Group, odd_rank: int = odd_rank) -> None:
            CALLS[odd if rank == odd_rank else usual](group).wait()

        for error in ranks.run(call):
            assert isinstance(error, Error), error
            assert "#1 of the default group" in str(error)
            assert "still missing" not in str(error)  # it did not wait for the time-out


def test_a_rank_with_one_call_more_is_told_number_and_both_calls(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        group.allreduce([torch.ones(3)]).wait()
        if rank == 1:
            group.broadcast([torch.ones(2, 2).double()], 0).wait()
        group.allreduce([torch.ones(5)]).wait()

    texts = {str(error) for error in ranks.run(call)}
    both = [text for text in texts if "broadcast" in text]
    assert both
    assert "all_reduce #2 of the default group, op SUM, float32 [5]" in both[0]
    assert "broadcast #2 of the default group, from rank 0, float64 [2, 2]" in both[0]


def test_after_a_mismatch_no_rank_waits_in_another_call(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        if rank == 1:
            group.allgather([[torch.ones(2) for _ in "abc"]], [torch.ones(2)])
        works = [group.allreduce([torch.ones(3)]), group.barrier()]
        texts = []
        for work in works:
            with pytest.raises(Error) as raised:
                work.wait()
            texts.append(str(raised.value))
        assert "still missing" not in " ".join(texts)
        with pytest.raises(Error, match="of the default group"):
            group.broadcast([torch.ones(1)], 0).wait()

    ranks.well(call)


REFUSED: Dict[str, Callable[[Group], Any]] = {
    "does not have the size of": lambda group: group.allgather(
        [[torch.ones(3) for _ in "abc"]], [torch.ones(4)]
    ),
    "2 tensors for 3 ranks": lambda group: group.allgather(
        [[torch.ones(3) for _ in "ab"]], [torch.ones(3)]
    ),
    "int32 and float32": lambda group: group.all_gather_single(torch.ones(9), torch.ones(3).int()),
    "does not hold 3 times": lambda group: group.reduce_scatter_single(
        torch.ones(3), torch.ones(8)
    ),
    "is sparse": lambda group: group.allreduce([torch.ones(3).to_sparse()]),
    "is on meta": lambda group: group.allreduce([torch.ones(3, device="meta")]),
    "no bits to combine": lambda group: group.allreduce([torch.ones(3)], dist.ReduceOp.BAND),
    "cannot hold a mean": lambda group: group.allreduce([torch.ones(3).bool()], dist.ReduceOp.AVG),
    "4 rows cannot be shared": lambda group: group.alltoall_base(torch.ones(4), torch.ones(4)),
    "do not share 3 rows": lambda group: group.alltoall_base(
        torch.ones(3), torch.ones(3), [1, 1, 2], [1, 1, 1]
    ),
    "knows SUM": lambda group: group.allreduce([torch.ones(3)], "CONCAT"),
    "2 tensors where a process has one": lambda group: group.allreduce([torch.ones(3)] * 2),
    "0 tensors where a process has one": lambda group: group.reduce([], 1),
    "rank 3: the group has the ranks 0 to 2": lambda group: group.broadcast([torch.ones(3)], 3),
    "rank -1: the group has": lambda group: group.gather([], [torch.ones(3)], -1),
    "0 tensors for 3 ranks": lambda group: group.alltoall([], []),
    "1 outputs for 2 inputs": lambda group: group.allgather_into_tensor_coalesced(
        [torch.ones(9)], [torch.ones(3)] * 2
    ),
    "0 outputs for 1 inputs": lambda group: group.allgather_coalesced([[]] * 3, [torch.ones(3)]),
    "split sizes [4, -1, 0]": lambda group: group.alltoall_base(
        torch.ones(3), torch.ones(3), [4, -1, 0], [1, 1, 1]
    ),
    " does not have the size of float32 [1]": lambda group: group.alltoall_base(
        torch.ones(3), torch.ones(6), [1, 1, 1], [2, 2, 2]
    ),
    "not iterable": lambda group: group.allgather(None, [torch.ones(3)]),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_wrong_call_of_one_rank_is_an_error_on_all(ranks: Ranks, fault: str) -> None:
    def call(rank: int, group: Group) -> None:
        (REFUSED[fault] if rank == 1 else CALLS["all_reduce"])(group).wait()

    errors = ranks.run(call)
    assert isinstance(errors[1], (TypeError, ValueError))
    assert fault in str(errors[1])
    for rank in (0, 2):
        assert isinstance(errors[rank], Error)
        assert "which rank 1 refuses: " in str(errors[rank])


@pytest.mark.parametrize("fault", REFUSED)
def test_a_call_that_all_ranks_refuse_leaves_the_group_whole(ranks: Ranks, fault: str) -> None:
    def call(_: int, group: Group) -> None:
        with pytest.raises((TypeError, ValueError), match=re.escape(fault)):
            REFUSED[fault](group)
        tensor = torch.ones(3)
        group.allreduce([tensor]).wait()
        assert tensor[0] == 3

    ranks.well(call)


def test_rows_that_ranks_count_differently_are_an_error(ranks: Ranks) -> None:
    """Rank 0 sends rank 2 nothing, which expects a row.

    Rank 0 only gives there, so its call may have ended before rank 2 comes.
    """

    def call(rank: int, group: Group) -> None:
        sent = [1, 1, 0] if rank == 0 else [1, 1, 1]
        group.alltoall_base(torch.zeros(3), torch.ones(sum(sent)), [1, 1, 1], sent).wait()

    errors = ranks.run(call)
    assert errors[0] is None or isinstance(errors[0], Error)
    assert isinstance(errors[2], Error)
    assert "still missing" not in str(errors[0]) + str(errors[2])
    text = str(errors[2])
    assert "all_to_all_single #1 of the default group, 0 elements from rank 0 to 2" in text
    assert "all_to_all_single #1 of the default group, 1 elements from rank 0 to 2" in text


def test_a_lost_worker_is_the_error_of_each_call(ranks: Ranks) -> None:
    def call(rank: int, group: Group) -> None:
        if rank == 2:
            ranks.job.fail(PeerLost("lost worker 2", 4))
            return
        work = group.allreduce([torch.ones(3)])
        group.barrier()
        ranks.job.fail(PeerLost("lost worker 2", 4))
        work.wait()

    errors = ranks.run(call)
    for error in errors[:2]:
        assert isinstance(error, PeerLost)
        assert str(error) == snapshot("all_reduce #1 of the default group: lost worker 2")


def test_a_rank_that_does_not_come_is_named_at_the_time_out() -> None:
    ranks = Ranks(3, timeout_s=2)

    def call(rank: int, group: Group) -> None:
        if rank != 1:
            group.barrier().wait()

    errors = ranks.run(call)
    assert errors[1] is None
    assert "barrier #1 of the default group: still missing: [1]" in str(errors[0])
    assert "barrier #1 of the default group: still missing: [1]" in str(errors[2])
    ranks.close()
