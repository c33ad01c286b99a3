"""Facts of all workers: the first that differs, and its sentence (see `test_objects`)."""

from typing import Dict

import pytest
from inline_snapshot import snapshot

from bytescheduler._session.objects import (
    Fact,
    Facts,
    Kind,
    difference,
    first_difference,
    unlike,
)

KINDS = {"number": Kind("give the same"), "weights": Kind("broadcast them", is_digest=True)}


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
