"""Which optimizer counts, from what the workers say of themselves."""

from typing import Callable, Dict, List, Optional

import mxnet as mx
import numpy as np
import pytest
from fakes import two_bits
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler._compression.params import Compression
from bytescheduler._native import Coding
from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._stores.agreement import Agreement

Numbers = np.ndarray


class TwoWorkers:
    """Stands in for a session; the other worker says what `others` has for a key."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.num_workers = 2
        self.others: Dict[int, Numbers] = {}
        self.said: Dict[int, Numbers] = {}
        self.watched: List[Numbers] = []
        self.judged = 0
        self.late = ""

    def broadcast(self, tensors: "List[object]") -> None:
        assert all(tensor.dtype.name == "float64" for tensor in tensors)  # type: ignore[attr-defined]

    def sum(self, key: int, numbers: Numbers) -> Numbers:
        self.said[key] = numbers
        other = self.others.get(key)
        return numbers * 1 if other is None else numbers + other

    def watch(self, key: int, numbers: Numbers, judge: "Callable[[Numbers], str]") -> None:
        self.watched.append(numbers)

    def judge(self, late: str = "") -> None:
        self.judged += 1
        self.late = late


KEYS = {"notes": 1, "barriers": 2, "copy 1": 3}


def agreement(session: object) -> Agreement:
    return Agreement(session, open_copier(), KEYS.__getitem__)  # type: ignore[arg-type]


def sgd() -> mx.optimizer.Updater:
    return mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5))


def note(changes: "List[float]", histories: "List[float]") -> Numbers:
    """Return the notes of two workers that compress nothing."""
    return np.array([changes, histories, *[[0.0, 0.0]] * 8])


def other_says(session: TwoWorkers, changes: int, changed_at: int, rounds: int, size: int) -> None:
    session.others[2] = np.zeros((2, 5))
    session.others[2][1 - session.rank] = (changes, changed_at, rounds, size, 0)


def test_workers_with_the_same_count_keep_their_optimizers() -> None:
    session = TwoWorkers()
    one = agreement(session)
    assert one.meet(None) is None
    one.changed()
    other_says(session, 1, 0, 7, 5)
    assert one.meet(sgd()) is None
    assert 3 not in session.said


def test_a_worker_that_is_behind_takes_over_the_optimizer_of_the_other() -> None:
    giver_session, session = TwoWorkers(0), TwoWorkers(1)
    giver = agreement(giver_session)
    giver.changed()
    assert giver.meet(sgd()) is None
    text = giver_session.said[3]
    behind = agreement(session)
    other_says(session, 1, 0, 0, len(text))
    session.others[3] = text
    optimizer = behind.meet(None)
    assert isinstance(optimizer, mx.optimizer.SGD)
    assert optimizer.learning_rate == 0.5
    assert not session.said[3].any()
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
    session = TwoWorkers()
    mine = agreement(session)
    mine.changed()
    other_says(session, *other)
    with pytest.raises(MXNetError, match=who):
        mine.meet(sgd())


def test_a_function_cannot_be_handed_on() -> None:
    mine = agreement(TwoWorkers())
    mine.changed()
    with pytest.raises(MXNetError, match="worker 0") as raised:
        mine.meet(lambda *_: None)
    assert str(raised.value) == snapshot(
        "worker 0: its updater is no optimizer: call set_optimizer on every worker"
    )


def test_a_required_agreement_sends_a_note_and_waits_for_the_other_worker() -> None:
    session = TwoWorkers()
    mine = agreement(session)
    mine.changed()
    mine.require()
    assert [note[:2].tolist() for note in session.watched] == [[[1, 0], [0, 0]]]
    assert session.judged == 1
    session.num_workers = 1
    mine.require()
    assert (len(session.watched), session.judged) == (1, 1)


def test_the_first_the_second_the_fourth_round_carry_a_note() -> None:
    session = TwoWorkers(1)
    mine = agreement(session)
    counts = []
    for _ in range(9):
        mine.pushed(1, None)
        mine.changed()
        counts.append(len(session.watched))
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4, 4]
    changes = [note.tolist()[0] for note in session.watched]
    assert changes == [[0, 0], [0, 1], [0, 3], [0, 7]]
    assert mine._what_differs(note([3.0, 3.0], [7.0, 7.0])) is None
    assert str(mine._what_differs(note([2.0, 3.0], [7.0, 8.0]))) == snapshot(
        "worker 1 has set an optimizer that worker 0 does not have: call set_optimizer on every "
        "worker, or _barrier() on every worker after it"
    )


class Numbered:
    """A worker's updater, as far as its numbers go."""

    def __init__(self, learning_rate: object) -> None:
        self.optimizer = mx.optimizer.SGD(learning_rate=learning_rate)


def history(*calls: "tuple[int, object]", loads_at: int = -1) -> float:
    """Return what a worker says at the end that pushed so many rounds, then so many, ...

    It loads states after `loads_at` of a call's rounds.
    """
    session = TwoWorkers()
    mine = agreement(session)
    for rounds, learning_rate in calls:
        for done in range(rounds):
            if done == loads_at:
                mine.loaded()
            mine.pushed(1, Numbered(learning_rate))
    mine.require()
    return float(session.watched[-1][1, 0])


def test_the_history_of_an_optimizer_tells_its_numbers_and_their_steps() -> None:
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
    said = str(Agreement._what_differs(note([1.0, 1.0], [same, same + 1])))
    assert said == snapshot(
        "the optimizers of worker 1 and of worker 0 differ, or did in some round, in learning "
        "rate, weight decay, momentum or rescale_grad (which a Trainer makes of the batch size: "
        "give step() the same number), or states were loaded on one only, and so their weights "
        "do: every worker updates its own, so give all of them the same numbers, and let all of "
        "them load states, before the same push"
    )


def test_a_long_job_says_so_every_1024_rounds() -> None:
    session = TwoWorkers()
    mine = agreement(session)
    for _ in range(4000):
        mine.pushed(1, None)
    assert len(session.watched) == 12 + 3


def test_at_a_barrier_numbers_that_differed_are_an_error() -> None:
    session = TwoWorkers()
    mine = agreement(session)
    mine.changed()
    mine.pushed(1, Numbered(0.5))
    other_says(session, 1, 0, 1, 5)
    with pytest.raises(MXNetError, match="learning rate") as raised:
        mine.meet(sgd())
    assert str(raised.value) == snapshot(
        "the optimizers of worker 0 and of worker 1 differ, or did in some round, in learning "
        "rate, weight decay, momentum or rescale_grad (which a Trainer makes of the batch size: "
        "give step() the same number), or states were loaded on one only, and so their weights "
        "do: every worker updates its own, so give all of them the same numbers, and let all of "
        "them load states, before the same push"
    )


def test_a_call_of_many_keys_counts_each_of_them() -> None:
    one, many = TwoWorkers(), TwoWorkers()
    singly, at_once = agreement(one), agreement(many)
    for _ in range(21):
        singly.pushed(1, None)
    for rounds in (5, 1, 15):
        at_once.pushed(rounds, None)
    assert len(one.watched) == len(many.watched) == 5


def test_alone_there_is_nothing_to_agree_on() -> None:
    session = TwoWorkers()
    session.num_workers = 1
    mine = agreement(session)
    mine.changed()
    mine.pushed(1, None)
    assert mine.undeclared() == []
    assert mine.meet(sgd()) is None
    assert not session.said
    assert not session.watched


def noted(
    coding: Optional[Coding], least_bytes: int = 0, momentum: Optional[float] = 0
) -> "List[float]":
    """Return what a note says of a worker's compression."""
    session = TwoWorkers()
    mine = agreement(session)
    mine.compressed(Compression(two_bits(0.125)))
    has_momentum = momentum is None or momentum > 0
    mine.compressed(
        Compression(coding, least_bytes, has_momentum=has_momentum, mu=momentum or None)
    )
    mine.require()
    return [float(row[0]) for row in session.watched[-1][2:]]


@pytest.mark.parametrize("coding", [None, two_bits(0.25)])
def test_notes_of_workers_that_compress_alike_agree(coding: Optional[Coding]) -> None:
    both = np.array([[0.0] * 2 + noted(coding, 4)] * 2).T
    assert Agreement._what_differs(both) is None


def test_notes_tell_workers_that_compress_otherwise() -> None:
    assert noted(None, 65536) == [0] * 8
    mine = [0.0, 0.0, *noted(two_bits(0.25), 65536)]
    other = [0.0, 0.0, *noted(None)]
    assert Agreement._what_differs(np.array([mine, other]).T) == snapshot(
        "what worker 0 pushes is compressed to two bits with threshold 0.25 from 65536 bytes on "
        "(BYTESCHEDULER_MIN_COMPRESS), what worker 1 pushes is not compressed: set gradient "
        "compression alike on all workers"
    )
    later = [0.0, 0.0, *noted(two_bits(0.25), 4096)]
    assert Agreement._what_differs(np.array([mine, later]).T) == snapshot(
        "what worker 0 pushes is compressed to two bits with threshold 0.25 from 65536 bytes on "
        "(BYTESCHEDULER_MIN_COMPRESS), what worker 1 pushes is compressed to two bits with "
        "threshold 0.25 from 4096 bytes on (BYTESCHEDULER_MIN_COMPRESS): set gradient compression "
        "alike on all workers"
    )


def test_notes_tell_workers_with_another_momentum() -> None:
    one, other, own = ([0.0, 0.0, *noted(two_bits(0.25), 0, mu)] for mu in (0.9, 0.5, None))
    assert Agreement._what_differs(np.array([one, one]).T) is None
    assert Agreement._what_differs(np.array([own, own]).T) is None
    assert Agreement._what_differs(np.array([one, other]).T) == snapshot(
        "what worker 0 pushes is compressed to two bits with threshold 0.25, with momentum 0.9, "
        "what worker 1 pushes is compressed to two bits with threshold 0.25, with momentum 0.5: "
        "set gradient compression alike on all workers"
    )
    plain = [0.0, 0.0, *noted(None)]
    assert "is not compressed, with the optimizer's momentum, what" in str(
        Agreement._what_differs(np.array([[0.0, 0.0, *noted(None, 0, None)], plain]).T)
    )


def test_notes_tell_momenta_and_pushes_that_differ_by_little() -> None:
    one, other = ([0.0, 0.0, *noted(None, 0, mu)] for mu in (0.9, 0.9000001))
    assert Agreement._what_differs(np.array([one, other]).T) == snapshot(
        "what worker 0 pushes is not compressed, with momentum 0.9, what worker 1 pushes is not "
        "compressed, with momentum 0.9000001: set gradient compression alike on all workers"
    )
    earlier, later = ([*one[:-1], pushes] for pushes in (5.0, 6.0))
    assert Agreement._what_differs(np.array([earlier, later]).T) == snapshot(
        "what worker 0 pushes is not compressed, with momentum 0.9, from push 6 on, what worker 1 "
        "pushes is not compressed, with momentum 0.9, from push 7 on: set gradient compression "
        "alike on all workers"
    )


def test_a_change_behind_the_first_key_waits_for_the_other_workers() -> None:
    session = TwoWorkers()
    mine = agreement(session)
    mine.compressed(Compression(two_bits(0.125)))
    mine.is_declared = True
    for threshold in (0.125, 0.25, 0.125):
        mine.compressed(Compression(two_bits(threshold)))
    assert (len(session.watched), session.judged) == (0, 0)
    mine.pushed(5, None)  # with 3 notes
    mine.compressed(Compression(has_momentum=True, mu=0.9))
    assert (len(session.watched), session.judged) == (4, 1)
    assert session.late == snapshot(
        "what worker 0 pushes is not compressed, with momentum 0.9, from push 6 on, and worker 1 "
        "has not set that, so what it pushes is compressed to two bits with threshold 0.125: set "
        "gradient compression alike on all workers"
    )
    session.num_workers = 3
    mine.compressed(Compression())
    assert "and some workers have not set that, so what they push is not c" in session.late
    session.num_workers = 1
    mine.compressed(Compression(has_momentum=True))
    assert session.judged == 2


def said_by_worker_0(coding: Coding) -> Numbers:
    said: List[Numbers] = []

    class Alone(TwoWorkers):
        def sum(self, key: int, numbers: Numbers) -> Numbers:
            said.append(numbers)
            return numbers[[0, 0]]  # the other says the same

    agreement(Alone(0)).same_coding(coding)
    assert not said[0][1].any()
    return said[0]


LONGEST = Coding.of(b"\xff" * 29)


@pytest.mark.parametrize("coding", [two_bits(0.25), Coding.of(bytes(5)), LONGEST])
def test_workers_that_compress_alike_agree(coding: Coding) -> None:
    session = TwoWorkers(1)
    session.others[2] = said_by_worker_0(coding)
    agreement(session).same_coding(coding)


def test_workers_that_compress_otherwise_are_told_both() -> None:
    session = TwoWorkers(1)
    session.others[2] = said_by_worker_0(two_bits(0.25))
    with pytest.raises(MXNetError, match="worker 0 .* 0.25, .* worker 1 .* 0.5") as raised:
        agreement(session).same_coding(two_bits(0.5))
    assert str(raised.value) == snapshot(
        "what worker 0 pushes is compressed to two bits with threshold 0.25, what worker 1 pushes "
        "is compressed to two bits with threshold 0.5: set gradient compression alike on all "
        "workers"
    )
    with pytest.raises(MXNetError, match="what worker 1 pushes is compressed by codec 4294967295"):
        agreement(session).same_coding(LONGEST)
