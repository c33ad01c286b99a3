"""The variables of launchers: roles, ranks, root and port of each, and what makes no job."""

import os
import socket
from typing import Dict, List

import pytest
from inline_snapshot import snapshot
from sentences import masked

from bytescheduler._started import starter
from bytescheduler._started.environments import (
    ENVIRONMENTS,
    LaunchError,
    direct_place,
    place_in_job,
    started_by,
)
from bytescheduler._started.hosted import hosts_server

Variables = Dict[str, str]
SIZE = 5
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_TASKS": str(SIZE),
    "SLURM_NTASKS": "9",
    "SLURM_STEP_NODELIST": "n[07-09]",
    "SLURM_JOB_NODELIST": "n[01-09]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": str(SIZE),
    "OMPI_COMM_WORLD_LOCAL_SIZE": str(SIZE),
    "PMIX_NAMESPACE": "1380188161",
}
MPICH = {"PMI_SIZE": str(SIZE), "MPI_LOCALNRANKS": str(SIZE)}
TORCHRUN = {
    "WORLD_SIZE": str(SIZE),
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
KUBERNETES = {"DMLC_NUM_WORKER": "2"}
# What each launcher sets for all processes of a job, and where the scheduler node is then.
ROWS = {
    "Slurm": (SLURM, "n07"),
    "Open MPI": (OPEN_MPI, "127.0.0.1"),
    "MPICH": (MPICH, "127.0.0.1"),
    "torchrun": (TORCHRUN, "10.0.0.1"),
    "Kubernetes": (KUBERNETES, "train-0.svc"),
}
RANKS = {row.name: row.rank for row in ENVIRONMENTS}


def of(name: str, rank: int, **more: str) -> Variables:
    """Return the variables of process `rank`."""
    return {**ROWS[name][0], RANKS[name]: str(rank), **more}


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """Let this host have the name of a pod, the last of the list."""
    names = ["train-0.svc"]
    monkeypatch.setattr(socket, "getfqdn", lambda: names[-1])
    return names


def test_every_row_has_a_test() -> None:
    assert sorted(ROWS) == sorted(RANKS)


@pytest.mark.parametrize("name", ROWS)
def test_process_0_is_the_scheduler_node_then_servers_then_workers(
    name: str, pod: List[str]
) -> None:
    places = []
    for rank in range(SIZE):
        pod.append(f"train-{rank}.svc")
        places.append(place_in_job(of(name, rank), servers=2))
    assert [place["DMLC_ROLE"] for place in places] == [
        "scheduler",
        *("server", "server"),
        *("worker", "worker"),
    ]
    assert [place.get("DMLC_SERVER_ID") for place in places] == [None, "0", "1", None, None]
    assert [place.get("DMLC_WORKER_ID") for place in places] == [None, None, None, "0", "1"]
    shared = ("DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT")
    assert len({tuple(place[each] for each in shared) for place in places}) == 1
    place = places[0]
    assert (place["DMLC_NUM_WORKER"], place["DMLC_NUM_SERVER"]) == ("2", "2")
    assert place["DMLC_PS_ROOT_URI"] == ROWS[name][1]
    assert 20000 <= int(place["DMLC_PS_ROOT_PORT"]) < 30000


def test_variables_that_are_set_stand() -> None:
    given = {"DMLC_PS_ROOT_URI": "10.1.1.1", "DMLC_PS_ROOT_PORT": "9091"}
    for name in ("Slurm", "MPICH"):
        place = place_in_job({**of(name, 1), **given}, servers=2)
        assert {each: place[each] for each in given} == given
    place = place_in_job(of("Slurm", 4, DMLC_NUM_SERVER="3"))
    assert (place["DMLC_ROLE"], place["DMLC_NUM_WORKER"]) == ("worker", "1")


def test_without_servers_the_other_processes_are_workers_that_host_them() -> None:
    places = [place_in_job(of("MPICH", rank), servers=0) for rank in range(SIZE)]
    assert places[0]["DMLC_ROLE"] == "scheduler"
    assert [place.get("DMLC_WORKER_ID") for place in places] == [None, "0", "1", "2", "3"]
    assert all(hosts_server(place) for place in places[1:])
    assert place_in_job(of("MPICH", 1, DMLC_NUM_SERVER="0")) == places[1]


def test_each_job_has_a_port_of_its_own() -> None:
    def port(name: str, **more: str) -> str:
        return place_in_job(of(name, 0, **more), servers=1)["DMLC_PS_ROOT_PORT"]

    assert port("Slurm") != port("Slurm", SLURM_STEP_ID="4")
    assert port("Slurm") != port("Slurm", SLURM_JOB_ID="78")
    assert port("Open MPI") != port("Open MPI", PMIX_NAMESPACE="2")
    # Hydra does not number its jobs, but all processes of a host have one parent.
    assert port("MPICH") == port("MPICH")
    assert port("MPICH", SLURM_JOB_ID="1") != port("MPICH")


def test_mpirun_in_a_batch_job_begins_at_the_first_host_of_the_job() -> None:
    batch = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[01-04]", "SLURM_NTASKS": "5"}
    batch.update(SLURM_PROCID="0", ENVIRONMENT="BATCH")
    # A daemon on another host was started by srun, so it is a task of a step.
    daemon = {**batch, "SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}
    daemon["SLURM_STEP_NODELIST"] = "n[02-04]"
    for name in ("Open MPI", "MPICH"):
        places = [place_in_job({**around, **of(name, 3)}, servers=2) for around in (batch, daemon)]
        assert places[0]["DMLC_PS_ROOT_URI"] == "n01"
        assert places[0] == places[1]


def test_a_batch_script_is_no_task_and_its_steps_are() -> None:
    script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "5", "ENVIRONMENT": "BATCH"}
    assert started_by(script) is None
    assert place_in_job(script, servers=2) == {}
    row = started_by({**script, "SLURM_STEP_ID": "0"})
    assert row is not None
    assert row.name == "Slurm"
    assert place_in_job({}, servers=2) == {}


def test_srun_with_pmi_is_one_launcher() -> None:
    both = {**of("Slurm", 3), "PMI_RANK": "3", "PMI_SIZE": str(SIZE)}
    assert place_in_job(both, servers=2)["DMLC_WORKER_ID"] == "0"


@pytest.mark.parametrize("size", [{}, {"WORLD_SIZE": str(SIZE)}])
@pytest.mark.parametrize("name", ["RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"])
def test_a_rank_made_of_slurm_s_contradicts_nothing(name: str, size: Variables) -> None:
    for rank in range(SIZE):
        alone = of("Slurm", rank)
        assert place_in_job({**alone, **size, name: str(rank)}, 2) == place_in_job(alone, 2)


@pytest.mark.parametrize("name", ["Slurm", "Open MPI", "MPICH", "Kubernetes"])
def test_a_process_of_torchrun_is_placed_by_it_whatever_started_torchrun(name: str) -> None:
    inner = of("torchrun", 1, TORCHELASTIC_RUN_ID="none")
    both = {**of(name, 2), **inner}
    row = started_by(both)
    assert row is not None
    assert row.name == "torchrun"
    assert direct_place(both, agrees=True) == direct_place(inner, agrees=True)
    left_over = without(both, "RANK")  # a script has unset it
    row = started_by(left_over)
    assert row is not None
    assert row.name == name


@pytest.mark.parametrize("host", ["[::1]", "::1", "[fd00::7]"])
def test_brackets_around_an_address_are_no_list(host: str) -> None:
    place = direct_place(of("torchrun", 1, MASTER_ADDR=host), agrees=True)
    assert place["DMLC_PS_ROOT_URI"] == host.strip("[]")


def test_scripts_between_change_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = place_in_job(of("MPICH", 1), servers=2)
    monkeypatch.setattr(os, "getppid", lambda: os.getpid())
    monkeypatch.setattr(starter, "_has", lambda number, _: number == os.getpid())
    assert place_in_job(of("MPICH", 1), servers=2) == direct


def test_one_host_is_enough_to_know_where_it_is() -> None:
    variables = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_NNODES": "1"}
    place = place_in_job({**variables, "SLURM_JOB_ID": "5"}, servers=1)
    assert place["DMLC_PS_ROOT_URI"] == "127.0.0.1"


def why(variables: Variables, servers: "int | None" = 2, workers: "int | None" = None) -> str:
    with pytest.raises(LaunchError) as raised:
        place_in_job(variables, servers, workers)
    return str(raised.value)


def without(variables: Variables, *names: str) -> Variables:
    return {name: value for name, value in variables.items() if name not in names}


@pytest.mark.parametrize("name", ROWS)
def test_without_the_number_of_servers_the_option_is_named(name: str) -> None:
    text = why(of(name, 0, TORCHELASTIC_RUN_ID="none"), servers=None)
    assert text.startswith(f"{name} started this process ({RANKS[name]}=0")
    assert "--servers N" in text


def test_too_few_tasks_are_counted() -> None:
    assert why(of("Slurm", 0), servers=4) == snapshot(
        "too few processes of Slurm for --servers 4: there are 5, want 6 or more, which are a "
        "scheduler node, the servers and a worker"
    )
    assert why(of("Slurm", 0), workers=3) == snapshot(
        "the number of processes of Slurm is 5, and a scheduler node, 2 servers and 3 workers are 6"
    )
    assert "and a scheduler node, 2 servers and 1 worker" in why(
        of("Slurm", 0, DMLC_NUM_WORKER="1")
    )


LISTS = ["n[1-", "n[3-1]", "a b", "(null)", "n[1-2]]", "$(id)", "n[1", "n[]", "n[1,]", "a,,b"]


@pytest.mark.parametrize("text", [*LISTS, f"n[{'1' * 5000}]", "n[١-٣]"])
def test_a_node_list_that_cannot_be_read_names_itself(text: str) -> None:
    found = why(of("Slurm", 0, SLURM_STEP_NODELIST=text))
    assert found.startswith(f"SLURM_STEP_NODELIST={text} cannot be read: ")
    assert found.endswith("; set DMLC_PS_ROOT_URI to the host of process 0")


@pytest.mark.parametrize("text", ["-1", "first", "1.0", "5 ", "9" * 30, "²", "0" * 5000 + "x"])
@pytest.mark.parametrize("name", ROWS)
def test_a_rank_that_is_no_number_names_itself(name: str, text: str) -> None:
    variables = {**of(name, 0), RANKS[name]: text}
    assert why(variables).startswith(f"{RANKS[name]}={text}: want a number from 0")


def test_zeros_before_a_number_say_nothing() -> None:
    assert place_in_job(of("Slurm", 0, SLURM_PROCID="0" * 5000 + "3"), 2) == place_in_job(
        of("Slurm", 3), 2
    )


def test_a_rank_beyond_the_last_is_refused() -> None:
    assert why(of("Slurm", 5)) == snapshot(
        "SLURM_PROCID=5: there are only 5 processes, which are a scheduler node, 2 servers and "
        "2 workers"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("Slurm", "Open MPI"), ("Slurm", "MPICH"), ("Open MPI", "MPICH"), ("Slurm", "torchrun")],
)
def test_two_launchers_that_contradict_each_other_are_both_named(one: str, other: str) -> None:
    text = why({**of(one, 1), **of(other, 2)})
    assert "contradict each other" in text
    assert f"{RANKS[one]}=1 of " in text
    assert f"{RANKS[other]}=2 of " in text
    # Only one of them started daemons of the other, so sizes may differ in this direction alone.
    assert "contradict" in why({**of("Open MPI", 1), **of("MPICH", 2), "PMI_SIZE": "3"})


@pytest.mark.parametrize(("name", "number"), [("DMLC_SERVER_ID", 2), ("DMLC_WORKER_ID", 4)])
def test_a_rank_that_is_asked_for_must_be_the_launcher_s(name: str, number: int) -> None:
    placed = of("Slurm", number)
    contradiction = masked(why({**placed, name: "0"}), NAME=name, NUMBER=number)
    assert contradiction == snapshot(
        "NAME=0 contradicts SLURM_PROCID=NUMBER, which gives this process rank 1: unset NAME"
    )
    assert place_in_job({**placed, name: "1"}, servers=2)[name] == "1"
    assert place_in_job({**placed, name: ""}, servers=2)[name] == "1"


def test_an_unknown_host_or_port_names_the_variable_to_set() -> None:
    far = {**of("Open MPI", 0), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert why(far) == snapshot(
        "Open MPI does not say on which host process 0 runs: set DMLC_PS_ROOT_URI to that host"
    )
    assert why({**of("MPICH", 0), "MPI_LOCALNRANKS": "2", "DMLC_PS_ROOT_URI": "a"}) == snapshot(
        "MPICH does not number its jobs: set DMLC_PS_ROOT_PORT to a free port of the host of "
        "process 0"
    )


def test_a_pod_needs_its_name_and_the_number_of_workers(pod: List[str]) -> None:
    variables = {"JOB_COMPLETION_INDEX": "3"}
    assert "--workers N" in why(variables)
    pod.append("train-2.svc")
    assert why(variables, workers=2) == snapshot(
        "this pod is called train-2.svc, which does not end with JOB_COMPLETION_INDEX=3: set "
        "DMLC_PS_ROOT_URI to the name of pod 0"
    )
    pod.append("my-job-3")
    place = place_in_job(variables, 2, 2)
    assert place["DMLC_PS_ROOT_URI"] == "my-job-0"
    assert place["DMLC_USE_KUBERNETES"] == "1"
    assert place_in_job({**variables, "DMLC_PS_ROOT_URI": "s"}, 2, 2)["DMLC_PS_ROOT_URI"] == "s"


def test_this_process_has_no_launcher_s_variables_left_over() -> None:
    assert started_by(os.environ) is None


@pytest.mark.parametrize("name", [name for name in ROWS if name != "Kubernetes"])
def test_in_a_direct_job_each_process_is_a_worker_and_hosts_a_server(name: str) -> None:
    places = [direct_place(of(name, rank), agrees=False) for rank in range(SIZE)]
    for rank, place in enumerate(places):
        assert "DMLC_ROLE" not in place
        assert (place["DMLC_WORKER_ID"], place["DMLC_SERVER_ID"]) == (str(rank), str(rank))
        assert (place["DMLC_NUM_WORKER"], place["DMLC_NUM_SERVER"]) == (str(SIZE), str(SIZE))
        assert place["DMLC_PS_ROOT_URI"] == ROWS[name][1]
    assert len({place["DMLC_PS_ROOT_PORT"] for place in places}) == 1
    assert "DMLC_PS_ROOT_PORT" not in direct_place(of(name, 0), agrees=True)
    given = direct_place(of(name, 0, DMLC_PS_ROOT_PORT="9091"), agrees=True)
    assert given["DMLC_PS_ROOT_PORT"] == "9091"


@pytest.mark.parametrize("name", ["Open MPI", "MPICH"])
def test_mpirun_may_pass_the_meeting_place_of_pytorch(name: str) -> None:
    row = next(row for row in ENVIRONMENTS if row.name == name)
    hosts = {**{row.rank: "1", row.sizes[0]: "4"}, **{row.local_sizes[0]: "2"}}
    with pytest.raises(LaunchError, match="set DMLC_PS_ROOT_URI"):
        direct_place(hosts, agrees=True)
    meeting = {**hosts, "MASTER_ADDR": "[fe80::1]", "MASTER_PORT": "29500"}
    place = direct_place(meeting, agrees=False)
    assert place["DMLC_PS_ROOT_URI"] == "fe80::1"
    assert (
        place["DMLC_PS_ROOT_PORT"]
        == direct_place({**meeting, row.rank: "0"}, agrees=False)["DMLC_PS_ROOT_PORT"]
    )
    with pytest.raises(LaunchError, match="set DMLC_PS_ROOT_PORT"):
        direct_place({**meeting, "MASTER_PORT": ""}, agrees=False)
    with pytest.raises(LaunchError, match="MASTER_ADDR=.* cannot be read"):
        direct_place({**meeting, "MASTER_ADDR": "a["}, agrees=True)


def test_variables_that_make_no_direct_job_are_named() -> None:
    def why_not(variables: Variables) -> str:
        with pytest.raises(LaunchError) as raised:
            direct_place(variables, agrees=False)
        return str(raised.value)

    assert direct_place({}, agrees=False) == {}
    assert why_not({"RANK": "1", "MASTER_ADDR": "a"}) == snapshot(
        "this process has RANK=1 and does not say how many there are: set WORLD_SIZE, or unset "
        "RANK to train alone"
    )
    assert why_not({"JOB_COMPLETION_INDEX": "1"}) == snapshot(
        "Kubernetes started this process (JOB_COMPLETION_INDEX=1) and does not say how many there "
        "are: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset JOB_COMPLETION_INDEX to "
        "train alone"
    )
    assert why_not(of("torchrun", SIZE)) == snapshot(
        "RANK=5 of WORLD_SIZE=5: want a number from 0 to 4"
    )
    assert why_not({"RANK": "1", "WORLD_SIZE": "2"}) == snapshot(
        "the environment has RANK=1 of WORLD_SIZE=2 and does not say on which host process 0 "
        "runs: set MASTER_ADDR to that host, or unset RANK and WORLD_SIZE to train alone"
    )
    assert why_not({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}) == snapshot(
        "the environment has RANK=1 of WORLD_SIZE=2 and does not number its jobs: set MASTER_PORT "
        "to a free port of the host of process 0, or unset RANK and WORLD_SIZE to train alone"
    )


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1"},
        {"RANK": "1", "WORLD_SIZE": "2"},
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
        {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
    ],
)
def test_torchrun_is_named_only_where_its_mark_is(variables: Variables) -> None:
    def texts(marked: Variables) -> List[str]:
        found = []
        for place in (
            lambda: direct_place(marked, agrees=False),
            lambda: place_in_job(marked),
            lambda: place_in_job(marked, servers=2, workers=2),
            lambda: started_by({**marked, **of("Slurm", 4)}),
        ):
            try:
                place()
            except LaunchError as error:
                found.append(str(error))
        return found

    assert len(texts(variables)) > 2
    assert [text for text in texts(variables) if "torchrun" in text] == []
    named = [
        text for text in texts({**variables, "TORCHELASTIC_RUN_ID": "a"}) if "torchrun" in text
    ]
    assert len(named) > 1
