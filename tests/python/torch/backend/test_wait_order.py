"""The learned order of calls, on a simulated link that sends the most urgent call first."""

import datetime
import threading
from typing import Dict, List, Type

import pytest
import torch
import torch.distributed as dist
from fake_exchanges import Ranks

from bytescheduler.errors import Timeout
from bytescheduler.torch._backend.group import Group
from bytescheduler.torch._engine import wait_order
from bytescheduler.torch._engine.wait_order import URGENT, Order, Turn

LAYERS = 6


class Link:
    """Carries a unit of a call in each moment."""

    def __init__(self) -> None:
        self.left: Dict[Turn, int] = {}
        self.priorities: Dict[Turn, int] = {}

    def begin(self, turn: Turn, size: int) -> None:
        self.left[turn], self.priorities[turn] = size, turn.priority

    def moment(self) -> None:
        """Send of the first that was begun, among those with the highest priority."""
        under_way = [turn for turn, left in self.left.items() if left]
        if under_way:
            self.left[max(under_way, key=self.priorities.__getitem__)] -= 1

    def wait(self, turn: Turn) -> int:
        """Wait for a call; return for how many moments."""
        turn.waited_for()
        self.priorities[turn] = URGENT
        moments = 0
        while self.left[turn]:
            self.moment()
            moments += 1
        return moments


def step(order: Order, link: Link, *, alike: bool) -> int:
    """Make a training step, whose backward begins calls from the last layer on.

    Returns for how many moments the forward pass waited.
    """
    turns: List[Turn] = []
    for layer in reversed(range(LAYERS)):
        turns.append(order.begin("gradient" if alike else f"gradient {layer}"))
        link.begin(turns[-1], 2)
        link.moment()
    waited = 0
    for turn in reversed(turns):
        waited += link.wait(turn)
        link.moment()
    return waited


def steps(kind: Type[Order], *, alike: bool = True) -> List[int]:
    order, link = kind(), Link()
    for _ in range(2):  # before the loop
        link.begin(first := order.begin("weights"), 3)
        link.wait(first)
    return [step(order, link, alike=alike) for _ in range(4)]


@pytest.mark.parametrize("alike", [True, False])
def test_the_order_of_waits_is_used_from_the_second_step_on(alike: bool) -> None:
    first, *later = steps(Order, alike=alike)
    assert later == [1, 1, 1]
    assert first > 2 * later[0]


class Reversed(Order):
    """Takes the last wait for the most urgent."""

    def begin(self, call: object) -> Turn:
        turn = super().begin(call)
        turn.priority = -(1 << 30) - turn.priority
        return turn


class Forgetful(Order):
    """Learns nothing."""

    def learn(self, *_: object) -> None:
        pass


class Placeless(Order):
    """Takes all calls that are alike for one."""

    def begin(self, call: object) -> Turn:
        self._counts.clear()
        return super().begin(call)


@pytest.mark.parametrize("mutant", [Reversed, Forgetful, Placeless])
def test_another_order_waits_longer(mutant: Type[Order]) -> None:
    assert min(steps(mutant)[1:]) > 1


def test_calls_that_are_not_waited_for_keep_their_turn() -> None:
    order = Order()
    for _ in range(3):
        turns = [order.begin(name) for name in "abc"]
        assert len({turn.priority for turn in turns}) == 1
        turns[0].leave()  # by a future
        turns[1].waited_for()
        turns[1].waited_for()  # counts once
        turns[1].leave()
        del turns  # the last was dropped
        assert not order._open


def test_an_unknown_call_goes_behind_earlier_calls() -> None:
    order = Order()
    priorities = []
    for name in "abcd":
        turn = order.begin(name)
        priorities.append(turn.priority)
        turn.waited_for()
    assert priorities == sorted(priorities, reverse=True)
    assert all(priority < 0 for priority in priorities)


def test_a_call_that_is_kept_delays_learning_and_takes_no_memory() -> None:
    order = Order()
    kept = order.begin("kept")
    for number in range(2 * wait_order._MOST_PLACES):
        order.begin(f"call {number}").waited_for()
    assert len(order._counts) <= wait_order._MOST_PLACES
    first, second = order.begin("a"), order.begin("b")
    assert first.priority != second.priority or not kept.waited_for()
    steps = []
    for _ in range(3):
        first, second = order.begin("a"), order.begin("b")
        steps.append(first.priority < second.priority)
        second.waited_for()
        first.waited_for()
    assert steps[-1]


def test_calls_that_never_come_again_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_order, "_MOST_PLACES", 8)
    order = Order()
    for name in range(100):
        order.begin(name).waited_for()
        assert len(order._distances) <= 8
    assert len(order._counts) == 1


def begun(priorities: Dict[int, int], known: int) -> List[int]:
    return list(priorities.values())[known:]


def test_a_call_is_urgent_once_it_is_waited_for() -> None:
    ranks = Ranks(2)
    priorities = ranks.carriers[0].priorities
    urgent = threading.Event()

    def call(rank: int, group: Group) -> None:
        if rank == 1:
            assert urgent.wait(10)
        works = [group.allreduce([torch.ones(40_000)]), group.allreduce([torch.ones(3)])]
        works += [group.barrier(), group.allreduce([torch.ones(3)])]
        if rank == 0:
            usual = begun(priorities, 0)[0]
            with pytest.raises(Timeout):
                works[1].wait(datetime.timedelta(milliseconds=1))
            assert begun(priorities, 0) == [usual, usual, URGENT, usual, usual]
            with pytest.raises(Timeout):
                works[2].wait(datetime.timedelta(milliseconds=1))
            assert begun(priorities, 0) == [*[URGENT] * 4, usual], "all before the barrier"
            urgent.set()
        assert all(work.wait() for work in works)

    ranks.well(call)
    ranks.close()


def test_a_group_begins_calls_by_the_order_of_waits() -> None:
    ranks = Ranks(2)
    blocking = dist.AllreduceOptions()
    blocking.asyncOp = False

    def call(rank: int, group: Group) -> None:
        priorities = ranks.carriers[rank].priorities
        for is_known in (False, True):
            known = len(priorities)
            large, small = group.allreduce([torch.ones(40_000)]), group.allreduce([torch.ones(3)])
            first, second, third = begun(priorities, known)
            assert first == second, "shards of one call"
            assert (first < third) == is_known
            assert third < 0
            assert small.wait()
            assert large.wait()
        known = len(priorities)
        group.allreduce([torch.ones(3)], blocking).wait()
        assert begun(priorities, known) == [URGENT]

    ranks.well(call)
    ranks.close()
