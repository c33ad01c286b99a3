"""A sum states itself under its name: when the name is new, and when it takes long."""

from typing import Any, Counter, Dict, List, Optional, Tuple, cast

import pytest
import torch

from bytescheduler._session.rounds import MAX, MIN, Exchange
from bytescheduler.errors import Closed, ConfigError, Error, UsageError
from bytescheduler.torch._sums import named_calls
from bytescheduler.torch._sums.named_calls import NamedCalls, SumCall
from bytescheduler.torch._sums.reductions import Reductions


class Meeting:
    """An exchange of two workers, which differ if their labels do; see `Pending`."""

    def __init__(self, label: str) -> None:
        self.labels = [label]
        self.error: Optional[Error] = None

    def join(self, label: str) -> None:
        self.labels.append(label)
        if len(set(self.labels)) > 1:
            self.error = ConfigError(" and ".join(self.labels), 1)

    def over(self) -> bool:
        if self.error is not None:
            raise self.error
        return len(self.labels) == 2

    def wait(self) -> None:
        assert self.over()


class Worker:
    """A session of one of two workers."""

    num_workers = 2

    def __init__(self, meetings: Dict[int, Meeting]) -> None:
        self.meetings = meetings
        self.refusal: Optional[Error] = None
        self.reasons: List[str] = []  # of failures of the job
        self._counts: Counter[Optional[str]] = Counter()

    def count_of(self, name: Optional[str]) -> int:
        self._counts[name] += 1
        return self._counts[name]

    def start_exchange(self, exchange: Exchange, **_: object) -> Meeting:
        if self.refusal is not None:
            raise self.refusal
        if exchange.key in self.meetings:
            self.meetings[exchange.key].join(exchange.label)
        else:
            self.meetings[exchange.key] = Meeting(exchange.label)
        return self.meetings[exchange.key]

    def quit_exchange(self, key: int, reason: str) -> None:
        meeting = self.meetings[key]
        meeting.error = meeting.error or Closed(reason, 3)

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


class Round:
    """A round that ends after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def over(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def wait_for(self, timeout_ms: int) -> bool:
        assert timeout_ms > 0
        return self.over()


@pytest.fixture
def workers() -> Tuple[Worker, Worker]:
    meetings: Dict[int, Meeting] = {}
    return Worker(meetings), Worker(meetings)


def calls_of(worker: Worker) -> NamedCalls:
    return NamedCalls(cast("Any", worker))


def sum_of(worker: Worker, looks: int = 5) -> SumCall:
    return calls_of(worker).next_sum("loss").carried_by(Round(looks))


def least_of(worker: Worker, op: int = MIN) -> Any:  # noqa: ANN401
    return Reductions(cast("Any", worker)).start(torch.ones(3), op, "loss", 0)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_calls, "_PATIENCE_S", -1.0)


def test_a_new_name_is_compared_at_once(workers: Tuple[Worker, Worker]) -> None:
    summing, other = workers
    calls = calls_of(summing)
    call = calls.next_sum("loss").carried_by(Round(5))
    calls.state(call)
    least = least_of(other)
    with pytest.raises(ConfigError, match=r"op=Sum or Average and .*'loss', op=Min, 3 elements"):
        call.wait()
    with pytest.raises(ConfigError, match="op=Sum or Average and"):
        least.wait()
    for worker in workers:
        assert len(worker.reasons) == 1
        assert worker.reasons[0].startswith("ConfigError: allreduce #1 of 'loss', op=Sum")


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("polls", [True, False])
def test_a_sum_that_takes_long_is_compared(workers: Tuple[Worker, Worker], polls: bool) -> None:
    summing, other = workers
    least, call = least_of(other), sum_of(summing)
    assert not least.over()
    with pytest.raises(ConfigError, match="op=Min, 3 elements .* and .*op=Sum or Average"):
        (call.over if polls else call.wait)()
    assert len(summing.reasons) == 1
    with pytest.raises(ConfigError):
        least.over()


@pytest.mark.usefixtures("_impatient")
def test_late_sums_meet_and_leave_nothing_under_way(workers: Tuple[Worker, Worker]) -> None:
    first, second = workers
    sum_of(first).wait()  # the other worker was quick
    (alone,) = first.meetings.values()
    assert isinstance(alone.error, Closed)
    sum_of(second, 0).wait()
    both = [sum_of(worker) for worker in workers]
    assert not any(call.over() for call in both)
    assert [meeting.over() for meeting in list(first.meetings.values())[1:]] == [True]
    for call in both:
        call.wait()
    assert not first.reasons + second.reasons


def test_a_quick_sum_states_nothing(workers: Tuple[Worker, Worker]) -> None:
    sum_of(workers[0]).wait()
    assert not workers[0].meetings


def test_sums_and_reductions_take_turns_under_one_name(workers: Tuple[Worker, Worker]) -> None:
    for _ in range(2):
        for worker in workers:
            sum_of(worker).wait()
        both = [least_of(worker) for worker in workers]
        for least in both:
            least.wait()
    assert [meeting.labels[0].partition(",")[0] for meeting in workers[0].meetings.values()] == [
        *("allreduce #2 of 'loss'", "allreduce #4 of 'loss'")
    ]


def test_reductions_that_differ_are_an_error_of_the_call_alone(
    workers: Tuple[Worker, Worker],
) -> None:
    least, greatest = least_of(workers[0]), least_of(workers[1], MAX)
    for reduction in (least, greatest):
        with pytest.raises(ConfigError):
            reduction.wait()
    assert not workers[0].reasons + workers[1].reasons


@pytest.mark.usefixtures("_impatient")
def test_a_job_without_exchanges_sums_as_before(workers: Tuple[Worker, Worker]) -> None:
    summing, _ = workers
    summing.refusal = UsageError("exchanges between some workers: MPI has none", 5)
    calls = calls_of(summing)
    call = calls.next_sum("loss").carried_by(Round(5))
    calls.state(call)
    call.wait()
    assert not summing.reasons
