"""The way into a job: alone, or refused with a cure."""

import os
import re
from types import SimpleNamespace
from typing import Any, Callable, Optional

import pytest
from inline_snapshot import snapshot

from bytescheduler._session.direct import Listen, Root, open_worker
from bytescheduler._session.opening import kind_of, open_session
from bytescheduler._session.place import Place
from bytescheduler._session.round_session import RoundSession
from bytescheduler.errors import ConfigError, UsageError


def test_a_process_alone_needs_no_server(capfd: pytest.CaptureFixture[str]) -> None:
    assert open_session(Place(), RoundSession) is None
    assert "trains alone" in capfd.readouterr().err


def test_a_process_alone_may_join_several_times() -> None:
    place: Place[RoundSession] = Place()
    assert [open_session(place, RoundSession) for _ in range(2)] == [None, None]


@pytest.mark.parametrize(
    ("workers", "kind"),
    [
        (1, "direct job of 1 worker, with a server in its process"),
        (2, "direct job of 2 workers, each with a server in its process"),
    ],
)
def test_the_kind_of_a_direct_job_says_where_servers_are(workers: int, kind: str) -> None:
    session: Any = SimpleNamespace(num_workers=workers, hosts_server=True)
    assert kind_of(session) == kind


LEFT_OVER = {"DMLC_NUM_SERVER": "2"}
BY_HAND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def refusal(monkeypatch: pytest.MonkeyPatch, variables: "dict[str, str]") -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        open_session(Place(), RoundSession)
    with pytest.raises(ConfigError, match=re.escape(str(raised.value))):
        open_worker()
    return str(raised.value)


def test_counts_left_over_from_another_job_name_themselves_under_a_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torchrun = {**BY_HAND, "TORCHELASTIC_RUN_ID": "none"}
    assert refusal(monkeypatch, {**torchrun, **LEFT_OVER}) == snapshot(
        "DMLC_NUM_SERVER=2 without DMLC_ROLE, and torchrun started this process (RANK=0 of "
        "WORLD_SIZE=2): unset DMLC_NUM_SERVER to let the workers host the servers, or put bslaunch "
        "--servers N before the script's command"
    )
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    both = refusal(monkeypatch, {"DMLC_NUM_WORKER": "2"})
    assert both == snapshot(
        "DMLC_NUM_WORKER=2 and DMLC_NUM_SERVER=2 without DMLC_ROLE, and this process has RANK=0 "
        "of WORLD_SIZE=2: unset DMLC_NUM_WORKER and DMLC_NUM_SERVER to let the workers host the "
        "servers, or put bslaunch --servers N before the script's command"
    )


def test_variables_may_come_from_elsewhere_than_the_environment() -> None:
    with pytest.raises(ConfigError, match="^DMLC_NUM_SERVER=2 without DMLC_ROLE"):
        open_session(Place(), RoundSession, variables=LEFT_OVER)


def test_counts_left_over_from_another_job_name_themselves_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert refusal(monkeypatch, LEFT_OVER) == snapshot(
        "DMLC_NUM_SERVER=2 without DMLC_ROLE: unset DMLC_NUM_SERVER to train alone, or start the "
        "job with bslaunch"
    )


def test_a_job_by_hand_that_lacks_its_role_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "1", "DMLC_NUM_WORKER": "1"}
    assert "DMLC_ROLE is not set" in refusal(monkeypatch, {**by_hand, **LEFT_OVER})


MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}


def refusal_of_the_second_job(variables: "dict[str, str]", monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**variables, "BYTESCHEDULER_LOG_LEVEL": "off"}.items():
        monkeypatch.setenv(name, value)
    place: Place[RoundSession] = Place()
    first = open_session(place, RoundSession)
    assert first is not None
    first.close()
    with pytest.raises(UsageError, match="has left the job") as raised:
        open_session(place, RoundSession)
    return str(raised.value).replace(variables.get("DMLC_PS_ROOT_PORT", "no port"), "PORT")


def test_a_launcher_with_one_port_says_why_it_gives_one_job(
    monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
) -> None:
    variables = {**MPI, "PMIX_NAMESPACE": f"job of process {os.getpid()}"}
    assert refusal_of_the_second_job(variables, monkeypatch) == snapshot(
        "init: shutdown() has left the job, and a process joins one job here, as this launcher "
        "gives it one port, and others several, such as torchrun; call shutdown() once, at the end"
    )
    variables["DMLC_PS_ROOT_PORT"] = str(free_port())
    assert "as DMLC_PS_ROOT_PORT gives it one port; " in refusal_of_the_second_job(
        variables, monkeypatch
    )


def test_the_launcher_s_variables_give_one_job_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in {**variables, "BYTESCHEDULER_LOG_LEVEL": "off"}.items():
        monkeypatch.setenv(name, value)

    def agree(listen: Optional[Listen]) -> Root:
        assert listen is not None
        return Root("", listen(""))

    place: Place[RoundSession] = Place()
    for _ in range(2):
        session = open_session(place, RoundSession, agree)
        assert session is not None
        session.close()


def test_a_job_with_servers_that_have_ended_is_left_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "127.0.0.1"}
    variables.update(DMLC_PS_ROOT_PORT="1", DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    place: Place[RoundSession] = Place()
    place._left.add("127.0.0.1:1")
    with pytest.raises(UsageError, match="as its servers end with their last worker; call"):
        open_session(place, RoundSession)


def test_a_server_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_ROLE", "server")
    with pytest.raises(ConfigError, match="a training script is a worker"):
        open_session(Place(), RoundSession)
