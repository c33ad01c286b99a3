"""Which addresses nodes show and find: hosts with several interfaces, IPv6, and late names."""

import importlib.util
import pathlib
import subprocess
import sys
from types import MappingProxyType
from typing import Callable, Dict, Iterator, List, Mapping, Sequence

import pytest
from job import WORKERS
from lab import hosts_or_skip
from two_hosts import BRIDGE, ETH10, PATIENCE_S, SERVER, TwoHosts

SUM = [sys.executable, str(WORKERS / "steps" / "first_sum.py")]
JOB = {
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_PORT": "19095",
    "BYTESCHEDULER_LOG_LEVEL": "info",
}
Ends = Dict[str, str]


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[TwoHosts]:
    with hosts_or_skip(lambda: TwoHosts(tmp_path)) as two:
        yield two


def start_job(
    hosts: TwoHosts, env: Dict[str, str], server: Dict[str, str], worker: Sequence[str] = SUM
) -> "Dict[str, subprocess.Popen[str]]":
    """Start scheduler node and worker 1 on host 1, server and worker 2 on host 2."""

    def start(host: int, role: str, command: List[str], **more: str) -> "subprocess.Popen[str]":
        return hosts.start(host, command, {**JOB, **env, "DMLC_ROLE": role, **more})

    return {
        "scheduler": start(1, "scheduler", SERVER),
        "server": start(2, "server", SERVER, **server),
        "worker 1": start(1, "worker", list(worker)),
        "worker 2": start(2, "worker", list(worker)),
    }


def outputs(
    processes: "Dict[str, subprocess.Popen[str]]", begun: Mapping[str, str] = MappingProxyType({})
) -> Ends:
    """Return what each has written when it ends, behind what was read of it before."""
    return {
        name: begun.get(name, "") + one.communicate(timeout=PATIENCE_S)[0]
        for name, one in processes.items()
    }


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Return what it writes up to the first line with `text`."""
    assert process.stdout is not None
    lines: List[str] = []
    while not lines or text not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    return "".join(lines)


def assert_summed(
    processes: "Dict[str, subprocess.Popen[str]]", begun: Mapping[str, str] = MappingProxyType({})
) -> Ends:
    ends = outputs(processes, begun)
    said = "\n".join(f"{name}: {text}" for name, text in ends.items())
    assert all(one.returncode == 0 for one in processes.values()), said
    assert all("summed at" in ends[name] for name in ("worker 1", "worker 2")), said
    return ends


LAUNCH = [sys.executable, "-m", "bytescheduler.launch", sys.executable]
README = [*LAUNCH, str(WORKERS / "cases" / "readme_line.py")]


@pytest.mark.parametrize("how", ["", "plain"])
def test_stores_of_mxnet_show_the_address_of_the_route_too(hosts: TwoHosts, how: str) -> None:
    command = [*README, how] if how else [*README[-2:], how]
    ends = assert_summed(start_job(hosts, {"DMLC_PS_ROOT_URI": "10.0.0.1"}, {}, command))
    assert BRIDGE not in "".join(ends.values())


def plain(_: pathlib.Path) -> Dict[str, str]:
    return {}


def encrypted(folder: pathlib.Path) -> Dict[str, str]:
    secret = folder / "secret"
    secret.write_text("a secret of all nodes of this job")
    secret.chmod(0o600)
    return {"BYTESCHEDULER_SECRET_FILE": str(secret)}


def test_nodes_show_the_address_that_the_route_leaves_from(hosts: TwoHosts) -> None:
    ends = assert_summed(start_job(hosts, {"DMLC_PS_ROOT_URI": "10.0.0.1"}, {}))
    assert BRIDGE not in "".join(ends.values())


@pytest.mark.parametrize(("wanted", "shown"), [("eth1", "10.0.0.2:"), ("eth10", ETH10)])
def test_the_exact_name_of_an_interface_wins_over_a_prefix(
    hosts: TwoHosts, wanted: str, shown: str
) -> None:
    env = {"DMLC_PS_ROOT_URI": "10.0.0.1"}
    listening = f"server: listening on {shown}"
    server = hosts.start(2, SERVER, {**JOB, **env, "DMLC_ROLE": "server", "DMLC_INTERFACE": wanted})
    assert server.stdout is not None
    assert any(listening in line for line in iter(server.stdout.readline, ""))


def test_a_node_that_no_connection_reaches_is_named_with_the_remedy(hosts: TwoHosts) -> None:
    env = {
        "DMLC_PS_ROOT_URI": "10.0.0.1",
        "BYTESCHEDULER_TIMEOUT": "12",
        "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "8",
    }
    processes = start_job(hosts, env, {"DMLC_INTERFACE": "docker0"})
    ends = outputs(processes)
    assert all(one.returncode != 0 for one in processes.values()), ends
    assert f"no connection to {BRIDGE}:" in ends["scheduler"]
    assert "; set DMLC_NODE_HOST on that host" in ends["scheduler"]
    assert "silent for" not in ends["scheduler"]


@pytest.mark.parametrize("security", [plain, encrypted])
@pytest.mark.parametrize("root", ["fd00::1", "sched6"])
def test_a_job_meets_by_ipv6(
    hosts: TwoHosts,
    tmp_path: pathlib.Path,
    root: str,
    security: Callable[[pathlib.Path], Dict[str, str]],
) -> None:
    hosts.know("sched6", "fd00::1")
    ends = assert_summed(start_job(hosts, {"DMLC_PS_ROOT_URI": root, **security(tmp_path)}, {}))
    assert "[fd00::2]:" in ends["scheduler"]


@pytest.mark.parametrize("looks", ["", "looks"])
def test_the_line_of_the_readme_works_by_ipv6(hosts: TwoHosts, looks: str) -> None:
    processes = start_job(hosts, {"DMLC_PS_ROOT_URI": "fd00::1"}, {}, [*README, looks])
    ends = assert_summed(processes)
    assert all("of 2, as before" in ends[name] for name in ("worker 1", "worker 2"))


@pytest.mark.parametrize("how", ["unwrapped", "plain"])
def test_a_stock_store_in_an_ipv6_job_gets_one_sentence(hosts: TwoHosts, how: str) -> None:
    env = {"DMLC_PS_ROOT_URI": "fd00::1", "BYTESCHEDULER_TIMEOUT": "10"}
    ends = outputs(start_job(hosts, env, {}, [*README, how]))
    for name in ("worker 1", "worker 2"):
        assert "which knows only IPv4" in ends[name] or "know only IPv4" in ends[name], ends[name]
        assert "DMLC_PS_ROOT_URI=fd00::1 is an IPv6 address" in ends[name], ends[name]


def test_a_name_that_is_known_late_holds_all_roles_up_only_until_then(hosts: TwoHosts) -> None:
    processes = start_job(hosts, {"DMLC_PS_ROOT_URI": "sched"}, {})
    said = "DMLC_PS_ROOT_URI=sched: the name cannot be resolved ("
    begun = {name: read_until(one, said) for name, one in processes.items()}
    assert all(one.poll() is None for one in processes.values())
    hosts.know("sched", "10.0.0.1")
    assert_summed(processes, begun)


def test_a_name_that_is_never_known_is_the_last_word_of_all_roles(hosts: TwoHosts) -> None:
    env = {"DMLC_PS_ROOT_URI": "sched", "BYTESCHEDULER_TIMEOUT": "1"}
    for name, text in outputs(start_job(hosts, env, {})).items():
        last = text.strip().splitlines()[-1]
        assert "DMLC_PS_ROOT_URI=sched: the name cannot be resolved (" in last, (name, text)
        assert "for 1 s (BYTESCHEDULER_RENDEZVOUS_TIMEOUT)" in last, (name, text)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_process_0_with_a_loopback_name_listens_where_the_other_host_reaches_it(
    hosts: TwoHosts,
) -> None:
    script = WORKERS / "torch" / "joined_again.py"
    job = {"WORLD_SIZE": "2", "MASTER_PORT": "29511", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    job["BYTESCHEDULER_TIMEOUT"] = "30"
    processes = [
        hosts.fork(1, script, {**job, "RANK": "0", "MASTER_ADDR": "localhost"}),
        hosts.fork(2, script, {**job, "RANK": "1", "MASTER_ADDR": "10.0.0.1"}),
    ]
    for process in processes:
        assert process.wait(PATIENCE_S) == 0, process.output()
        assert process.output().count(": [3.0, 3.0, 3.0]") == 2, process.output()
