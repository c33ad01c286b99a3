"""The view of a job is a value, and says which workers share a host where that is known."""

import dataclasses

import pytest

from bytescheduler._session.view import View
from bytescheduler.errors import UsageError


def test_a_view_counts_its_workers_and_the_workers_of_its_host() -> None:
    view = View(epoch=0, rank=3, hosts=(7, 4, 7, 7), num_servers=2)
    assert view.num_workers == 4
    assert (view.local_rank, view.local_size) == (2, 3)


def test_a_view_does_not_change() -> None:
    view = View(epoch=0, rank=0, hosts=(0,), num_servers=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        view.rank = 1  # type: ignore[misc]


def test_hosts_that_are_not_known_are_no_shared_host() -> None:
    view = View(epoch=0, rank=1, hosts=(-1, -1), num_servers=2)
    assert view.num_workers == 2
    with pytest.raises(UsageError, match="where workers run: stock servers know nothing of it"):
        view.local_rank  # noqa: B018
    with pytest.raises(UsageError, match="start the job with bslaunch"):
        view.local_size  # noqa: B018


def test_positions_across_hosts_are_among_workers_of_one_local_rank() -> None:
    hosts = (7, 4, 7, 7)
    views = [View(epoch=0, rank=rank, hosts=hosts, num_servers=1) for rank in range(4)]
    assert [(view.cross_rank, view.cross_size) for view in views] == [
        *((0, 2), (1, 2)),
        *((0, 1), (0, 1)),
    ]
    assert not views[0].is_homogeneous
    assert View(epoch=0, rank=3, hosts=(0, 0, 1, 1), num_servers=1).is_homogeneous
    assert View(epoch=0, rank=3, hosts=(0, 0, 1, 1), num_servers=1).cross_rank == 1
    with pytest.raises(UsageError, match="start the job with bslaunch"):
        View(epoch=0, rank=0, hosts=(-1, -1), num_servers=1).is_homogeneous  # noqa: B018
