"""Addresses that give ranks: in the order of a scheduler node, whatever the number of processes."""

import socket

import pytest

from bytescheduler._launch.launcher import LOOPBACK, Place
from bytescheduler._launch.ranks import place_of


@pytest.mark.parametrize("count", [1, 2, 9, 10, 155, 156, 1024])
def test_a_scheduler_node_that_sorts_the_texts_gives_the_ranks_that_are_meant(count: int) -> None:
    places = [place_of(rank, count).address for rank in range(count)]
    assert sorted(places, reverse=True) == places
    assert len(set(places)) == count
    for place in places:
        numbers = [int(number) for number in place.split(".")]
        assert numbers[0] == 127
        assert 1 <= numbers[3] <= 254


def test_one_process_has_the_usual_address() -> None:
    assert place_of(0, 1) == LOOPBACK


def test_where_the_system_lends_no_other_address_all_share_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert [place_of(rank, 2) for rank in range(2)] == [Place("127.0.0.1")] * 2
