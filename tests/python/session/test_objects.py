"""Objects of one worker reach another one; facts of all workers are compared."""

import pickle
from typing import Dict, Iterator, Tuple

import pytest
from inline_snapshot import snapshot
from relaying import relaying_sessions

from bytescheduler._session.objects import (
    Fact,
    Facts,
    Kind,
    Objects,
    difference,
    first_difference,
    unlike,
)
from bytescheduler._session.relay import Relay
from bytescheduler.errors import ConfigError, UsageError

Pair = Tuple[Objects, Objects]
KINDS = {"number": Kind("give the same"), "weights": Kind("broadcast them", is_digest=True)}


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return the objects of worker 0, which must call first, and of worker 1."""
    sessions = relaying_sessions()
    first, second = (Objects(Relay(each), each) for each in sessions)
    yield first, second
    for each in sessions:
        each.close()


@pytest.mark.parametrize("value", [None, {"step": 3}, b"", bytes(9 << 20)])
def test_an_object_of_any_size_arrives_as_it_is(pair: Pair, value: object) -> None:
    assert pair[0].broadcast(value, 0) is value
    assert pair[1].broadcast("ignored", 0) == value


def test_an_object_that_pickle_refuses_is_an_error_on_every_worker(pair: Pair) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pair[0].broadcast(lambda: 0, 0)
    with pytest.raises(UsageError, match="worker 0 could not pickle its object"):
        pair[1].broadcast(None, 0)
    pair[0].broadcast(7, 0)
    assert pair[1].broadcast(None, 0) == 7


def test_tensors_of_another_kind_are_an_error(pair: Pair) -> None:
    for theirs, mine, why in (
        ([("a", 1), ("b", 2)], [("a", 1)], "b: there is no such tensor here"),
        ([("a", 1)], [("a", 2)], "a: it is 2 here and 1 on worker 0"),
        ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], "in another order"),
    ):
        pair[0].check_same(theirs, 0)
        with pytest.raises(ConfigError, match=why):
            pair[1].check_same(mine, 0)
    with pytest.raises(UsageError, match="a: two tensors have this name"):
        pair[0].check_same([("a", 1), ("a", 1)], 0)


def test_a_root_that_is_no_worker_is_refused(pair: Pair) -> None:
    with pytest.raises(ConfigError, match="root_rank 2: want 0 to 1"):
        pair[0].broadcast(1, 2)


def facts(**values: str) -> Facts:
    return {name: Fact("number", value) for name, value in values.items()}


def digests(**values: str) -> Facts:
    return {name: Fact("weights", value) for name, value in values.items()}


def test_equal_facts_have_no_sentence() -> None:
    assert difference([facts(a="1", b="2")] * 3, KINDS) is None
    assert difference([], KINDS) is None
    assert unlike([]) is None


def test_the_first_label_that_differs_is_told_with_its_cure() -> None:
    workers = [facts(a="1", b="2", c="3"), facts(a="1", b="2", c="3"), facts(a="1", b="5", c="6")]
    assert difference(workers, KINDS) == snapshot(
        "b: it is 2 on worker 0 and 5 on worker 2; give the same"
    )


def test_a_fact_that_one_worker_lacks_is_absent() -> None:
    assert difference([facts(a="1"), facts(a="1", b="2")], KINDS) == snapshot(
        "b: it is absent on worker 0 and 2 on worker 1; give the same"
    )
    assert difference([digests(w="ab"), {}], KINDS) == snapshot(
        "w: it is there on worker 0 and absent on worker 1; broadcast them"
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_digests_are_not_shown_and_three_workers_are_named(count: int) -> None:
    workers = [digests(w="ab"), *[digests(w=str(at)) for at in range(count)]]
    told: Dict[int, str] = {
        1: "w: worker 1 has other values than worker 0; broadcast them",
        2: "w: worker 1 and worker 2 have other values than worker 0; broadcast them",
        3: "w: worker 1 and worker 2 and worker 3 have other values than worker 0; broadcast them",
        4: "w: worker 1 and worker 2 and worker 3, with further ones, have other values than "
        "worker 0; broadcast them",
    }
    assert difference(workers, KINDS) == told[count]


def test_the_values_of_a_difference_are_by_worker() -> None:
    assert first_difference([{"a": 1, "b": 2}, {"b": 2, "c": 3}]) == ("a", [1, None])
    assert first_difference([{"a": 1}, {"a": 1}]) is None
    assert unlike([4, 4, 5, 6]) == 2
