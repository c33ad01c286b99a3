"""Which optimizer counts, from what the workers say of themselves."""

from typing import Callable, Dict, List, Optional

import mxnet as mx
import numpy as np
import pytest
from fakes import FakePlugin, FakeWorker
from mxnet.base import MXNetError

from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._stores.agreement import Agreement
from bytescheduler.mxnet._stores.link import Link

Numbers = np.ndarray


class TwoWorkers:
    """Stands in for a link; the other worker says what `others` has for a key."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.num_workers = 2
        self.others: Dict[int, Numbers] = {}
        self.said: Dict[int, Numbers] = {}
        self.watched: List[Numbers] = []
        self.judged = 0

    def broadcast(self, tensors: "List[object]") -> None:
        assert all(tensor.dtype.name == "float64" for tensor in tensors)  # type: ignore[attr-defined]

    def sum(self, key: int, numbers: Numbers) -> Numbers:
        self.said[key] = numbers
        other = self.others.get(key)
        return numbers * 1 if other is None else numbers + other

    def watch(self, key: int, numbers: Numbers, judge: "Callable[[Numbers], str]") -> None:
        self.watched.append(numbers)

    def judge(self) -> None:
        self.judged += 1


KEYS = {"notes": 1, "barriers": 2, "copy 1": 3}


def agreement(link: object) -> Agreement:
    return Agreement(link, open_copier(), KEYS.__getitem__)  # type: ignore[arg-type]


def sgd() -> mx.optimizer.Updater:
    return mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5))


def other_says(link: TwoWorkers, changes: int, changed_at: int, rounds: int, size: int) -> None:
    link.others[2] = np.zeros((2, 5))
    link.others[2][1 - link.rank] = (changes, changed_at, rounds, size, 0)


def test_workers_with_the_same_count_keep_what_they_have() -> None:
    link = TwoWorkers()
    one = agreement(link)
    assert one.meet(None) is None
    one.changed()
    other_says(link, 1, 0, 7, 5)
    assert one.meet(sgd()) is None
    assert 3 not in link.said


def test_who_is_behind_takes_over_what_the_other_gives() -> None:
    giver_link, link = TwoWorkers(0), TwoWorkers(1)
    giver = agreement(giver_link)
    giver.changed()
    assert giver.meet(sgd()) is None
    text = giver_link.said[3]
    behind = agreement(link)
    other_says(link, 1, 0, 0, len(text))
    link.others[3] = text
    optimizer = behind.meet(None)
    assert isinstance(optimizer, mx.optimizer.SGD)
    assert optimizer.learning_rate == 0.5
    assert not link.said[3].any()
    assert behind.meet(mx.optimizer.get_updater(optimizer)) is None  # now they are even


@pytest.mark.parametrize(
    ("other", "who"),
    [
        ((0, 0, 1, 0), "worker 0 has set an optimizer in another round than that of worker 1"),
        ((2, 0, 1, 9), "worker 1 has set an optimizer in another round than that of worker 1"),
        ((2, 1, 1, 9), "worker 1 has set an optimizer in another round than that of worker 0"),
    ],
)
def test_rounds_that_came_first_are_an_error(other: "tuple[int, int, int, int]", who: str) -> None:
    link = TwoWorkers()
    mine = agreement(link)
    mine.changed()
    other_says(link, *other)
    with pytest.raises(MXNetError, match=who):
        mine.meet(sgd())


def test_a_function_cannot_be_handed_on() -> None:
    mine = agreement(TwoWorkers())
    mine.changed()
    with pytest.raises(MXNetError, match="worker 0: its updater is no optimizer: call set_optim"):
        mine.meet(lambda *_: None)


def test_who_must_know_now_sends_a_note_and_waits_for_the_others() -> None:
    link = TwoWorkers()
    mine = agreement(link)
    mine.changed()
    mine.require()
    assert [note.tolist() for note in link.watched] == [[[1, 0], [0, 0]]]
    assert link.judged == 1
    link.num_workers = 1
    mine.require()
    assert (len(link.watched), link.judged) == (1, 1)


def test_the_first_the_second_the_fourth_round_carry_a_note() -> None:
    link = TwoWorkers(1)
    mine = agreement(link)
    counts = []
    for _ in range(9):
        mine.pushed(1, None)
        mine.changed()
        counts.append(len(link.watched))
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4, 4]
    changes = [note.tolist()[0] for note in link.watched]
    assert changes == [[0, 0], [0, 1], [0, 3], [0, 7]]
    assert mine._what_differs(np.array([[3.0, 3.0], [7.0, 7.0]])) is None
    assert "worker 1 has set an optimizer that worker 0 does not have" in str(
        mine._what_differs(np.array([[2.0, 3.0], [7.0, 8.0]]))
    )


class Numbered:
    """A worker's updater, as far as its numbers go."""

    def __init__(self, learning_rate: object) -> None:
        self.optimizer = mx.optimizer.SGD(learning_rate=learning_rate)


def history(*calls: "tuple[int, object]", loads_at: int = -1) -> float:
    """Return what a worker says at the end that pushed so many rounds, then so many, ...

    It loads states after `loads_at` of a call's rounds.
    """
    link = TwoWorkers()
    mine = agreement(link)
    for rounds, learning_rate in calls:
        for done in range(rounds):
            if done == loads_at:
                mine.loaded()
            mine.pushed(1, Numbered(learning_rate))
    mine.require()
    return float(link.watched[-1][1, 0])


def test_the_history_of_an_optimizers_numbers_tells_what_they_were_and_when() -> None:
    same = history((3, 0.5), (2, 0.25), (9, 0.5))
    assert same == history((3, np.float32(0.5)), (2, 0.25), (9, 0.5))
    assert len({history((1, number)) for number in (None, float("nan"), np.ones(3), 0.5)}) == 4
    others = [
        history((14, 0.5)),
        history((2, 0.5), (2, 0.25), (10, 0.5)),
        history((3, 0.5), (2, 0.125), (9, 0.5)),
    ]
    assert same not in others
    loads = [history((10, 0.5), loads_at=after) for after in (-1, 3, 4, 3)]
    assert loads[1] == loads[3]
    assert len(set(loads)) == 3
    said = str(Agreement._what_differs(np.array([[1.0, 1.0], [same, same + 1]])))
    assert "the optimizers of worker 1 and of worker 0 differ, or did in some round" in said


def test_a_long_job_says_so_every_1024_rounds() -> None:
    link = TwoWorkers()
    mine = agreement(link)
    for _ in range(4000):
        mine.pushed(1, None)
    assert len(link.watched) == 12 + 3


def test_at_a_barrier_numbers_that_differed_are_an_error() -> None:
    link = TwoWorkers()
    mine = agreement(link)
    mine.changed()
    mine.pushed(1, Numbered(0.5))
    other_says(link, 1, 0, 1, 5)
    with pytest.raises(MXNetError, match="differ, or did in some round, in learning rate"):
        mine.meet(sgd())


def test_a_call_of_many_keys_counts_each_of_them() -> None:
    one, many = TwoWorkers(), TwoWorkers()
    singly, at_once = agreement(one), agreement(many)
    for _ in range(21):
        singly.pushed(1, None)
    for rounds in (5, 1, 15):
        at_once.pushed(rounds, None)
    assert len(one.watched) == len(many.watched) == 5


def test_alone_there_is_nothing_to_agree_on() -> None:
    link = TwoWorkers()
    link.num_workers = 1
    mine = agreement(link)
    mine.changed()
    mine.pushed(1, None)
    assert mine.undeclared() == []
    assert mine.meet(sgd()) is None
    assert not link.said
    assert not link.watched


# -- sums that the link watches ------------------------------------------------------------------


class Sum:
    """A sum under way, which the test ends."""

    def __init__(self) -> None:
        self.is_over = False
        self.waits = 0

    def over(self) -> bool:
        return self.is_over

    def wait(self) -> None:
        self.waits += 1


@pytest.fixture
def sums(worker: FakeWorker) -> "List[Sum]":
    started: List[Sum] = []

    def start(key: int, send: int, recv: int, size: int, *, owner: object, priority: int) -> Sum:
        assert size == 16
        assert priority == -(2**31)  # behind all tensors
        started.append(Sum())
        return started[-1]

    worker.start_push_pull = start  # type: ignore[attr-defined]
    return started


def test_a_sum_is_judged_once_it_is_there(
    link: Link, worker: FakeWorker, sums: "List[Sum]"
) -> None:
    judged: List[Numbers] = []

    def judge(total: Numbers) -> Optional[str]:
        judged.append(total)
        return None if len(judged) == 1 else "they differ"

    link.watch(1, np.ones(2), judge)
    link.watch(1, np.ones(2), judge)
    link.check()
    assert not judged
    sums[0].is_over = True
    link.check()
    assert len(judged) == 1
    sums[1].is_over = True
    with pytest.raises(MXNetError, match="gave up: they differ"):
        link.check()
    worker.failure = None
    link.check()
    assert len(judged) == 2


def test_closing_waits_for_a_sum_and_judges_it(
    worker: FakeWorker, plugin: FakePlugin, sums: "List[Sum]"
) -> None:
    link = Link(worker, plugin)
    link.watch(1, np.ones(2), lambda total: "they differ")
    with pytest.raises(MXNetError, match="gave up: they differ"):
        link.close()
    assert sums[0].waits == 1
    assert worker.closed


def test_workers_that_compress_with_other_thresholds_are_told_both() -> None:
    link = TwoWorkers(1)
    link.others[1] = np.array([0.25, 0])
    agreement(link).same_threshold(0.25)
    with pytest.raises(
        MXNetError, match="worker 0 compresses with threshold 0.25, worker 1 with threshold 0.5: "
    ):
        agreement(link).same_threshold(0.5)
