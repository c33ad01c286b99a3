"""A worker that hosts a server: the settings of both, and their names in messages."""

import pytest
from inline_snapshot import snapshot

from bytescheduler._started.hosted import hosted_place, hosts_server, named_by_workers

WORKER = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "3",
    "DMLC_NUM_SERVER": "0",
    "DMLC_PS_ROOT_URI": "host1",
    "DMLC_PS_ROOT_PORT": "9091",
}


@pytest.mark.parametrize(
    ("more", "hosts"),
    [
        ({}, True),
        ({"DMLC_NUM_SERVER": "00"}, True),
        ({"DMLC_NUM_SERVER": "-0"}, True),
        ({"DMLC_NUM_SERVER": "-1"}, False),
        ({"DMLC_NUM_SERVER": "1"}, False),
        ({"DMLC_NUM_SERVER": "10"}, False),
        ({"DMLC_NUM_SERVER": ""}, False),
        ({"DMLC_ROLE": "scheduler"}, False),
        ({"DMLC_ROLE": ""}, False),
    ],
)
def test_a_worker_of_a_job_without_servers_hosts_one(more: "dict[str, str]", hosts: bool) -> None:
    variables = {**WORKER, **more}
    assert hosts_server(variables) == hosts
    assert bool(hosted_place(variables)) == hosts


def test_server_and_worker_have_one_rank_and_the_place_of_a_job_with_servers() -> None:
    assert hosted_place({**WORKER, "DMLC_WORKER_ID": "2", "DMLC_SERVER_ID": "0"}) == snapshot(
        {
            "DMLC_NUM_WORKER": "3",
            "DMLC_PS_ROOT_URI": "host1",
            "DMLC_PS_ROOT_PORT": "9091",
            "DMLC_WORKER_ID": "2",
            "DMLC_SERVER_ID": "2",
            "DMLC_NUM_SERVER": "3",
        }
    )


def test_the_rank_may_be_the_launchers_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    assert "DMLC_SERVER_ID" not in hosted_place(WORKER)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    place = hosted_place(WORKER)
    assert (place["DMLC_WORKER_ID"], place["DMLC_SERVER_ID"]) == ("1", "1")


def test_a_server_is_named_by_its_worker() -> None:
    text = "lost server 12 (10.0.0.1:9): connection closed (reported by server 1)"
    assert named_by_workers(text) == snapshot(
        "lost worker 12 (its server 10.0.0.1:9): connection closed (reported by server 1)"
    )
    text = "worker 0 has waited for 3 s, and server 1 has not answered for 5 s more"
    assert named_by_workers(text) == snapshot(
        "worker 0 has waited for 3 s, and the server of worker 1 has not answered for 5 s more"
    )
