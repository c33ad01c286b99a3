"""The variables by which PyTorch's processes know their rank, and where they meet."""

import pytest

from bytescheduler._launch import torch_place


def test_a_worker_has_its_rank_in_the_job_and_on_its_host() -> None:
    assert torch_place.ranks(3, 5, 1, 2, host=1) == {
        "RANK": "3",
        "WORLD_SIZE": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
    }


@pytest.mark.parametrize("given", [{}, {"MASTER_ADDR": "host9"}, {"MASTER_PORT": "7"}])
def test_workers_meet_at_a_free_port_of_rank_0(given: "dict[str, str]") -> None:
    place = torch_place.meeting_place(given, "host1", lambda: 29500)
    assert place == {"MASTER_ADDR": "host1", "MASTER_PORT": "29500"}


def test_a_place_that_is_given_stays() -> None:
    given = {"MASTER_ADDR": "host9", "MASTER_PORT": "7", "OTHER": "x"}
    assert torch_place.meeting_place(given, "host1", lambda: 29500) == {
        "MASTER_ADDR": "host9",
        "MASTER_PORT": "7",
    }
