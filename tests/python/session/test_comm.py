"""BYTESCHEDULER_COMM against the kind of the job."""

from typing import Dict

import pytest
from inline_snapshot import snapshot

from bytescheduler._session.direct import (
    check_comm,
    check_kind,
    in_direct_job,
    open_worker,
    place_in_direct_job,
)
from bytescheduler.errors import ConfigError

LAUNCHED = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
WITH_SERVERS = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "3"}
ALONE: Dict[str, str] = {}


def refusal(monkeypatch: pytest.MonkeyPatch, variables: "Dict[str, str]", **settings: str) -> str:
    """Return the error of a process with these variables and settings."""
    for name, value in settings.items():
        monkeypatch.setenv(f"BYTESCHEDULER_{name}", value)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        check_kind(variables)
    with pytest.raises(ConfigError) as again:
        open_worker(variables=variables)
    assert str(again.value) == str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("variables", "comm"),
    [
        (WITH_SERVERS, "auto"),
        (WITH_SERVERS, "servers"),
        (LAUNCHED, "auto"),
        (LAUNCHED, "direct"),
        (ALONE, "auto"),
        (ALONE, "direct"),
    ],
)
def test_a_way_that_the_job_has_is_taken(
    monkeypatch: pytest.MonkeyPatch, variables: "Dict[str, str]", comm: str
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_COMM", comm)
    check_kind(variables)


def test_direct_is_refused_in_a_job_with_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, WITH_SERVERS, COMM="direct") == snapshot(
        "BYTESCHEDULER_COMM=direct, and this job has 3 servers: unset BYTESCHEDULER_COMM, or let "
        "the workers host the servers, by bslaunch -s 0, or by a launcher such as torchrun without "
        "DMLC_ROLE, DMLC_NUM_WORKER and DMLC_NUM_SERVER"
    )


def test_servers_are_refused_in_a_direct_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, LAUNCHED, COMM="servers") == snapshot(
        "BYTESCHEDULER_COMM=servers, and this process has RANK=0 of WORLD_SIZE=2, so there are no "
        "servers: start the job with bslaunch --servers N, or unset BYTESCHEDULER_COMM"
    )


def test_servers_are_refused_where_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no launcher has started this process" in refusal(monkeypatch, ALONE, COMM="servers")


def test_nccl_needs_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, ALONE, COMM="nccl") == snapshot(
        "BYTESCHEDULER_COMM=nccl, and no launcher has started this process: start it with a "
        "launcher such as torchrun, or unset BYTESCHEDULER_COMM"
    )
    check_comm("nccl", started="this process has RANK=0 of WORLD_SIZE=2")


def test_mpi_needs_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, ALONE, COMM="mpi") == snapshot(
        "BYTESCHEDULER_COMM=mpi, and no launcher has started this process: start it with mpirun "
        "-n 2, or unset BYTESCHEDULER_COMM"
    )
    check_comm("mpi", started="MPICH started this process")


@pytest.mark.parametrize("comm", ["mpi", "nccl"])
def test_a_library_needs_a_direct_job(comm: str) -> None:
    with pytest.raises(ConfigError, match=f"COMM={comm}, and this job has 2 servers: unset"):
        check_comm(comm, servers="2 servers")


@pytest.mark.parametrize("comm", ["servers", "direct", "mpi", "nccl"])
@pytest.mark.parametrize("backend", ["kvstore", "passthrough"])
def test_a_way_is_refused_beside_a_store_of_mxnets(
    monkeypatch: pytest.MonkeyPatch, comm: str, backend: str
) -> None:
    assert refusal(monkeypatch, LAUNCHED, COMM=comm, BACKEND=backend) == (
        f"BYTESCHEDULER_COMM={comm} beside BYTESCHEDULER_BACKEND={backend}, with which MXNet's own "
        "store carries the bytes: unset one of them"
    )


def test_a_place_for_workers_that_join_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, LAUNCHED, REJOIN_TIMEOUT="10s") == snapshot(
        "BYTESCHEDULER_REJOIN_TIMEOUT=10 in a direct job, where a lost worker takes its server "
        "with it: unset it, or start the job with bslaunch --servers N"
    )


def test_a_launcher_s_worker_hosts_a_server() -> None:
    assert in_direct_job(LAUNCHED)
    assert not in_direct_job(WITH_SERVERS)
    assert not in_direct_job(ALONE)
    place = place_in_direct_job(LAUNCHED)
    assert (place["DMLC_NUM_WORKER"], place["DMLC_NUM_SERVER"]) == ("2", "2")


def test_variables_that_make_no_job_are_refused() -> None:
    with pytest.raises(ConfigError, match="does not say how many there are"):
        in_direct_job({"RANK": "0"})
