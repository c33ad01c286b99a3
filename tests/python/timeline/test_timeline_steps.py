"""What a worker's spans make of each step, and which tensors are in it."""

from typing import Any, Dict, List, Tuple

from bytescheduler import timeline
from bytescheduler._native import FIRST_BOOKKEEPING_KEY
from bytescheduler._timeline import steps

Event = Dict[str, Any]


def span(kind: str, when: Tuple[float, float], **about: int) -> Event:
    where = {"key": 7, "part": 0, "round": 1, "bytes": 100, "priority": -7, "server": 0}
    times = {"ts": when[0] * 1e6, "dur": (when[1] - when[0]) * 1e6}
    return {"cat": kind, "ph": "X", "pid": 1, **times, "args": {**where, **about}}


def rounds_of(events: List[Event]) -> Dict[steps.Where, steps.Step]:
    rounds: Dict[steps.Where, steps.Step] = {}
    for event in events:
        steps.add(rounds, event)
    return rounds


def test_times_that_touch_or_overlap_become_one() -> None:
    assert steps.union([(5, 6), (0, 2), (1, 3), (3, 4), (0.5, 1)]) == [(0, 4), (5, 6)]
    assert steps.union([]) == []


def test_a_tensor_tells_when_its_partitions_were_queued_sent_and_waited() -> None:
    rounds = rounds_of(
        [
            span("tensor", (10, 18)),
            span("queue", (10, 12)),
            span("push", (12, 14)),
            span("push", (13, 15), part=1, bytes=11),
            span("pull", (12, 14)),
            span("pull", (13, 18), part=1),
            span("queue", (20, 21), round=2),
            {**span("push", (10, 11), key=8), "pid": 2},
        ]
    )
    assert {where: list(step) for where, step in rounds.items()} == {
        (0, 1): [7],
        (0, 2): [7],
        (1, 1): [8],
    }
    tensor = rounds[0, 1][7]
    assert (tensor.begin, tensor.end, tensor.bytes, tensor.priority) == (10, 18, 111, -7)
    assert tensor.queued == [(10, 12)]
    assert tensor.sent == [(12, 14), (13, 15)]
    assert tensor.waited == [(15, 18)]
    assert tensor.last_wait == 3
    assert rounds[0, 2][7].last_wait != rounds[0, 2][7].last_wait  # no sum came


def test_pushes_at_another_rhythm_are_in_no_step() -> None:
    gradients = [
        span("push", (number * 10.0 + key, number * 10.0 + key + 1), key=key, round=number)
        for number in range(1, 9)
        for key in range(5)
    ]
    # Its rounds come at steps 1, 2, 4 and 8.
    agreed = [
        span("push", (step * 10.0, step * 10.0 + 1), key=99, round=number)
        for number, step in enumerate([1, 2, 4, 8], 1)
    ]
    twice = [
        span("push", (number * 5.0 + 1, number * 5.0 + 2), key=98, round=number)
        for number in range(1, 17)
    ]
    told = timeline.summary([*gradients, *agreed, *twice])["steps"]
    assert [row["seconds"] for row in told] == [5.0] * 8
    assert [row["bytes"] for row in told] == [500] * 8


def test_where_nothing_has_a_rhythm_the_most_frequent_key_makes_the_steps() -> None:
    counts = {3: 5, 99: 4, 4: 2, 5: 1}
    events = [
        span(kind, (n, n + (0.2 if kind == "push" else 0.5)), key=key, round=n)
        for key, count in counts.items()
        for n in range(1, count + 1)
        for kind in ("push", "pull")
    ]
    told = timeline.summary(events)
    assert [row["bytes"] for row in told["steps"]] == [200] * 4 + [100]
    assert {row["key"] for row in told["tensors"]} == {3, 4, 5, 99}


def test_a_key_as_frequent_by_chance_is_in_no_step_of_another_time() -> None:
    gradients = [
        span("push", (number * 10.0 + key, number * 10.0 + key + 1), key=key, round=number)
        for number in range(1, 5)
        for key in range(5)
    ]
    agreed = [span("push", (10 + n / 9, 11 + n / 9), key=99, round=n) for n in range(1, 5)]
    told = timeline.summary([*gradients, *agreed])["steps"]
    assert [row["bytes"] for row in told] == [600] + [500] * 3


def test_gradients_that_come_late_in_a_step_are_in_it() -> None:
    # Half of a small network's bytes are there at once, and the last gradient most of a step later.
    begins = {5: 0.1, 4: 0.2, 3: 0.3, 2: 5.0, 1: 13.0}
    events = [
        span("push", (number * 15 + begin, number * 15 + begin + 1), key=key, round=number)
        for number in range(1, 21)
        for key, begin in begins.items()
    ]
    assert {row["bytes"] for row in timeline.summary(events)["steps"]} == {500}


def test_a_worker_that_trains_one_tensor_has_steps_too() -> None:
    alone = rounds_of([span("push", (n, n + 0.5), round=n) for n in range(1, 4)])
    assert list(steps.in_step(alone)) == [(0, 1), (0, 2), (0, 3)]


def test_agreements_of_workers_are_in_no_step_and_hide_none() -> None:
    # One tensor, and notes: a round before the first step, and then one in each.
    gradients = [span("push", (n, n + 0.5), round=n) for n in range(1, 6)]
    key = FIRST_BOOKKEEPING_KEY
    notes = [span("push", (n - 0.7, n - 0.6), key=key, round=n) for n in range(1, 7)]
    told = timeline.summary([*gradients, *notes])["steps"]
    assert [(row["step"], row["bytes"]) for row in told] == [(n, 100) for n in range(1, 6)]
