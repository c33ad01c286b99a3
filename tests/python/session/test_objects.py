"""Objects of one worker reach another one."""

import pickle
from typing import Iterator, Tuple

import pytest
from relaying import relaying_sessions

from bytescheduler._session.objects import Objects
from bytescheduler._session.relay import Relay
from bytescheduler.errors import ConfigError, UsageError

Pair = Tuple[Objects, Objects]


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
