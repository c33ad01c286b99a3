"""Callbacks at the events of a device, in their order, with a time limit and an end."""

import threading
from typing import Callable, Iterator, List, Optional

import pytest
from polling import until

from bytescheduler.errors import Closed, Timeout
from bytescheduler.torch._backend.devices.device_watch import DeviceWatch

Outcome = Optional[Exception]


class Switch:
    """An event that a test decides."""

    def __init__(self) -> None:
        self.is_over = False
        self.error: Optional[Exception] = None
        self.is_seen = threading.Event()

    def query(self) -> bool:
        self.is_seen.set()
        if self.error is not None:
            raise self.error
        return self.is_over


def watching() -> List[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bytescheduler-watch"]


@pytest.fixture
def watch() -> Iterator[DeviceWatch]:
    made = DeviceWatch()
    yield made
    made.close()
    assert not watching()


def test_an_event_is_told_behind_earlier_events(watch: DeviceWatch) -> None:
    told: List[int] = []
    events = [Switch() for _ in range(20)]
    for at, event in enumerate(events):
        watch.add(event, 10, lambda outcome, at=at: told.append(at))  # type: ignore[misc]
    assert events[0].is_seen.wait(10)
    assert not any(event.is_seen.is_set() for event in events[1:])
    assert told == []
    for event in reversed(events):
        event.is_over = True
    until(lambda: len(told) == len(events))
    assert sorted(told) == list(range(len(events)))
    assert len(watching()) <= 4


def test_an_event_that_takes_too_long_or_fails_is_told_so(watch: DeviceWatch) -> None:
    outcomes: List[Outcome] = []
    never, broken, well = Switch(), Switch(), Switch()
    broken.error, well.is_over = RuntimeError("CUDA error: out of memory"), True
    watch.add(never, 0.02, outcomes.append)
    until(lambda: outcomes)
    watch.add(broken, 10, outcomes.append)
    until(lambda: len(outcomes) == 2)
    watch.add(well, 10, outcomes.append)
    until(lambda: len(outcomes) == 3)
    assert isinstance(outcomes[0], Timeout)
    assert "the device has not come to its tensors within 0.02 s" in str(outcomes[0])
    assert str(outcomes[1]) == "CUDA error: out of memory"
    assert outcomes[2] is None


def test_a_callback_may_wait_for_a_later_event(watch: DeviceWatch) -> None:
    depth, ends = 5, threading.Event()

    def nested(left: int) -> Callable[[Outcome], None]:
        def then(outcome: Outcome) -> None:
            assert outcome is None
            if left == 0:
                ends.set()
                return
            later = Switch()
            later.is_over = True
            watch.add(later, 10, nested(left - 1))
            assert ends.wait(10)

        return then

    first = Switch()
    watch.add(first, 10, nested(depth))
    first.is_over = True
    assert ends.wait(10)


def test_an_end_is_told_to_all_and_a_beginning_works() -> None:
    watch, outcomes = DeviceWatch(), []
    events = [Switch() for _ in range(3)]
    for event in events:
        watch.add(event, 10, outcomes.append)
    assert events[0].is_seen.wait(10)
    watch.close()
    assert [type(outcome) for outcome in outcomes] == [Closed] * 3
    assert not watching()
    events[0].is_over = True
    watch.add(events[0], 10, outcomes.append)
    until(lambda: len(outcomes) == 4)
    assert outcomes[3] is None
    watch.close()
    assert not watching()


def test_a_callback_may_end_the_threads() -> None:
    watch, event = DeviceWatch(), Switch()
    watch.add(event, 10, lambda outcome: watch.close())
    event.is_over = True
    until(lambda: not watching())
