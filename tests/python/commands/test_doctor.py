"""`bytescheduler doctor`: every finding, good and bad, with what to do about it."""

import contextlib
import errno
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Callable, Dict, Iterator, List

import pytest
from click.testing import Result
from click_runner import runner
from inline_snapshot import snapshot
from sentences import line_with, masked

from bytescheduler._doctor import findings, host, network, software
from bytescheduler._doctor.findings import Finding
from bytescheduler._native import HostFact
from bytescheduler._settings import Settings
from bytescheduler.commands import doctor

LIMIT_S = 60
FACTS = [
    HostFact("kernels", "avx2", ""),
    HostFact("numa", "0", "0 1"),
    HostFact("interface", "lo", "127.0.0.1"),
    HostFact("address", "127.0.0.1", ""),
]
NOTHING_SET = {
    name: ""
    for name in (
        *("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI"),
        *("DMLC_PS_ROOT_PORT", "DMLC_NODE_HOST", "DMLC_INTERFACE", "DMLC_LOCAL"),
        *("DMLC_USE_KUBERNETES", "DMLC_PORT"),
    )
}


def by_name(found: List[Finding]) -> Dict[str, Finding]:
    names = [finding.name for finding in found]
    assert len(set(names)) == len(names)
    assert all(finding.level in ("ok", "warning", "problem") for finding in found)
    assert all(bool(finding.advice) == (finding.level != "ok") for finding in found)
    return {finding.name: finding for finding in found}


# -- software ----------------------------------------------------------------------------------

Modules = Callable[..., None]


@pytest.fixture
def modules(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Return what puts modules of the given text before the real ones."""

    def put(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    absent = "raise ModuleNotFoundError('gone', name='torch')"
    put(numpy="__version__ = '1.23.5'", mxnet="__version__ = '1.9.1'", torch=absent)
    return put


def a_torch(version: str, cuda: str = "None", gpus: int = 0) -> str:
    """Return the text of a module that passes for PyTorch."""
    return "\n".join(
        (
            f"__version__ = {version!r}",
            "class version:",
            f"    cuda = {cuda}",
            "class cuda:",
            f"    device_count = lambda: {gpus}",
        )
    )


def test_software_that_fits_is_named_with_its_versions(modules: Modules) -> None:
    # TensorFlow and libraries of collective operations may be on this host or not.
    may_be_there = ("mpi", "nccl", "tensorflow")
    findings = [each for each in software.check("") if each.name.split()[0] not in may_be_there]
    found = by_name(findings)
    assert list(found) == ["python", "engine", "numpy", "mxnet", "torch", "tuning"]
    assert all(finding.level == "ok" for finding in found.values())
    assert found["numpy"].text == "numpy 1.23.5"
    assert found["mxnet"].text == "MXNet 1.9.1"


def test_without_the_library_that_tunes_it_says_so(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = by_name(software.check("worker"))["tuning"]
    assert found.level == "warning"
    assert "bayesian-optimization==1.4.3" in found.advice
    assert "tuning" not in by_name(software.check("server"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__version__ = '1.8.0'", "MXNet 1.8.0: bytescheduler is made for 1.9.1"),
        ("import numpy; numpy.bool", "module 'numpy' has no attribute 'bool'"),
        ("raise OSError('libgomp.so.1: cannot open')", "OSError: libgomp.so.1: cannot open"),
        ("import nosuchmodule", "cannot be imported: No module named 'nosuchmodule'"),
        ("import os; os.kill(os.getpid(), 11)", "cannot be imported: it was ended by SIGSEGV"),
        ("import os; os._exit(3)", "cannot be imported: it ended with 3"),
        ("import os; os._exit(0)", "cannot be imported: it said nothing"),
        ("print('x' * 10**6); raise SystemExit(4)", "cannot be imported: SystemExit: 4"),
        ("(", "cannot be imported: SyntaxError"),
    ],
)
def test_a_broken_mxnet_is_a_problem_that_names_the_cause(
    modules: Modules, text: str, said: str
) -> None:
    modules(mxnet=text)
    found = by_name(software.check(""))
    assert found["mxnet"].level == "problem"
    assert said in found["mxnet"].text
    assert "mxnet==1.9.1" in found["mxnet"].advice
    assert found["numpy"].level == "ok"


def test_an_mxnet_that_hangs_is_given_up(modules: Modules) -> None:
    modules(mxnet="import signal, threading; signal.signal(15, lambda *_: 0); signal.pause()")
    found = by_name(software.check("", limit_s=8))
    assert found["mxnet"].text == snapshot("MXNet cannot be imported: it was not done in 8 s")
    assert found["numpy"].level == "ok"


def test_long_words_of_an_mxnet_do_not_hold_it_up(modules: Modules) -> None:
    modules(mxnet="raise OSError('\u00e4' * 10**6 + ' and no more')")
    found = by_name(software.check("", limit_s=LIMIT_S))
    assert found["mxnet"].text.startswith("MXNet cannot be imported: ")
    assert found["mxnet"].text.endswith("\u00e4 and no more")


def test_no_space_for_files_is_no_failure(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp", "mkdtemp"):
        monkeypatch.setattr(tempfile, name, refuse)
    assert by_name(software.check(""))["mxnet"].text == "MXNet 1.9.1"


def test_a_process_that_cannot_be_started_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    finding = by_name(software.check(""))["numpy"]
    assert finding.level == "problem"
    assert finding.text == snapshot(
        "numpy cannot be imported: it could not be started: Resource temporarily unavailable"
    )


def test_a_numpy_that_crashes_is_told_without_a_word_on_mxnet(modules: Modules) -> None:
    modules(numpy="import os; os.abort()")
    found = by_name(software.check(""))
    assert found["numpy"].text == snapshot("numpy cannot be imported: it was ended by SIGABRT")
    assert "mxnet" not in found


def test_a_numpy_that_is_too_new_is_a_problem(modules: Modules) -> None:
    modules(numpy="__version__ = '1.24.0rc1'")
    finding = by_name(software.check(""))["numpy"]
    assert finding.level == "problem"
    assert "does not work with 1.24 or newer" in finding.text
    assert "numpy==1.23.5" in finding.advice


@pytest.mark.parametrize(
    ("role", "level"), [("worker", "problem"), ("", "warning"), ("server", "ok")]
)
def test_only_workers_must_have_mxnet(modules: Modules, role: str, level: str) -> None:
    modules(mxnet="raise ModuleNotFoundError('gone', name='mxnet')")
    finding = by_name(software.check(role))["mxnet"]
    assert finding.level == level
    assert finding.text.startswith("MXNet is not installed")


def test_mxnet_is_imported_as_no_role_of_a_job(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_ROLE", "server")
    modules(mxnet="import os; __version__ = os.environ.get('DMLC_ROLE', '1.9.1')")
    assert by_name(software.check("server"))["mxnet"].text == "MXNet 1.9.1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (a_torch("2.1.0+cpu"), "PyTorch 2.1.0+cpu, for processors alone"),
        (a_torch("2.13.0", "'12.8'"), "PyTorch 2.13.0, for CUDA 12.8; it sees no GPU"),
        (a_torch("3.0", "'13.0'", 2), "PyTorch 3.0, for CUDA 13.0; it sees 2 GPUs"),
    ],
)
def test_a_torch_that_fits_is_named_and_mxnet_may_be_missing_then(
    modules: Modules, text: str, said: str
) -> None:
    modules(torch=text, numpy="__version__ = '2.3.1'", mxnet="import mxnet_that_is_gone")
    found = by_name(software.check("worker"))
    assert (found["torch"].level, found["torch"].text) == ("ok", said)
    assert found["mxnet"].level == "problem"  # it is there and broken, so numpy is wrong for it
    assert found["numpy"].level == "problem"
    modules(mxnet="raise ModuleNotFoundError('gone', name='mxnet')")
    found = by_name(software.check("worker"))
    assert (found["numpy"].level, found["mxnet"].level) == ("ok", "ok")


def test_a_torch_that_is_too_old_or_broken_is_a_problem(modules: Modules) -> None:
    modules(torch=a_torch("2.0.1"))
    finding = by_name(software.check("worker"))["torch"]
    assert finding.level == "problem"
    assert finding.text == snapshot("PyTorch 2.0.1: bytescheduler.torch needs 2.1 or newer")
    modules(torch="import os; os.abort()")
    found = by_name(software.check("worker"))
    assert found["torch"].text == snapshot("PyTorch cannot be imported: it was ended by SIGABRT")
    assert found["mxnet"].level == "ok"


# -- host --------------------------------------------------------------------------------------


@pytest.fixture
def sysctl(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a system whose limits are good."""
    root = tmp_path / "sys"
    for name, text in {
        "net/core/rmem_max": "4194304",
        "net/core/wmem_max": "4194304",
        "net/core/somaxconn": "4096",
        "net/ipv4/tcp_rmem": "4096\t131072\t33554432",
        "net/ipv4/tcp_wmem": "4096\t16384\t4194304",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_this_host_is_described() -> None:
    found = by_name(host.check(FACTS, None))
    assert set(found) == {
        *("cores", "numa", "kernels", "open_files", "locked_memory", "socket_buffers"),
        *("backlog", "tcp_rto_max_ms", "congestion", "shm", "tmp"),
    }
    assert found["kernels"].text == "servers sum with avx2 kernels"
    assert found["numa"].text == "1 NUMA node (node 0: cores 0 1)"
    assert str(len(os.sched_getaffinity(0))) in found["cores"].text


def test_one_core_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert by_name(host.check(FACTS, None))["cores"].level == "warning"


@pytest.mark.parametrize(
    ("quota", "level"), [("0.500000", "warning"), ("1.5", "warning"), ("2", "ok"), ("16", "ok")]
)
def test_a_quota_of_processors_is_named(
    quota: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    finding = by_name(host.check([*FACTS, HostFact("quota", quota, "")], None))["quota"]
    assert finding.level == level
    assert f"the time of {float(quota):g} processors" in finding.text


@pytest.mark.parametrize(
    ("limits", "peers", "level", "advice"),
    [
        ((1024, 1024), None, "ok", ""),
        ((500, 4096), None, "warning", "ulimit -n 1024"),
        ((500, 4096), 8, "ok", ""),
        ((500, 4096), 100, "problem", "ulimit -n 656"),
        ((500, 500), 100, "problem", "ulimit -n 656, which the hard limit of 500 forbids"),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 10000, "ok", ""),
    ],
)
def test_open_files_must_do_for_the_job(
    monkeypatch: pytest.MonkeyPatch, limits: "tuple[int, int]", peers: int, level: str, advice: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    finding = by_name(host.check(FACTS, peers))["open_files"]
    assert finding.level == level
    assert finding.advice.startswith(advice)


def test_good_limits_are_told_with_their_numbers(sysctl: pathlib.Path) -> None:
    found = by_name(host.check(FACTS, 16, sysctl=sysctl))
    assert found["socket_buffers"] == Finding(
        "host",
        "socket_buffers",
        "ok",
        "TCP buffers grow to 32 MiB received, 4 MiB sent "
        "(net.core: rmem_max 4 MiB, wmem_max 4 MiB)",
        "",
    )
    assert found["backlog"].level == "ok"


def test_small_buffers_and_a_short_backlog_are_warnings(sysctl: pathlib.Path) -> None:
    (sysctl / "net/ipv4/tcp_wmem").write_text("4096 16384 65536\n")
    (sysctl / "net/core/somaxconn").write_text("8\n")
    found = by_name(host.check(FACTS, 16, sysctl=sysctl))
    assert found["socket_buffers"].level == "warning"
    assert found["socket_buffers"].advice.startswith("sysctl -w net.ipv4.tcp_wmem=")
    assert "tcp_rmem" not in found["socket_buffers"].advice
    assert found["backlog"].advice == "sysctl -w net.core.somaxconn=16"


def test_bbr_is_a_warning_and_cubic_is_none(sysctl: pathlib.Path) -> None:
    which = sysctl / "net/ipv4/tcp_congestion_control"
    which.write_text("bbr\n")
    found = by_name(host.check(FACTS, None, sysctl=sysctl))["congestion"]
    assert found.level == "warning"
    assert found.text.startswith("TCP's congestion control is bbr")
    assert found.advice.startswith("sysctl -w net.ipv4.tcp_congestion_control=cubic")
    which.write_text("cubic\n")
    found = by_name(host.check(FACTS, None, sysctl=sysctl))["congestion"]
    assert (found.level, found.advice) == ("ok", "")


def test_a_system_that_tells_nothing_is_no_failure(tmp_path: pathlib.Path) -> None:
    found = by_name(host.check(FACTS, 16, sysctl=tmp_path))
    assert found["congestion"].text.startswith("the system does not tell")
    assert found["socket_buffers"].text == snapshot(
        "the system does not tell the sizes of its buffers"
    )
    assert found["backlog"].text.startswith("the system does not tell")


def test_a_kernel_without_tcp_rto_max_ms_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_TCP_RTO_MAX_MS", 30000)
    assert by_name(host.check(FACTS, None))["tcp_rto_max_ms"].level == "warning"


def test_folders_that_are_missing_or_full_are_warnings(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    finding = by_name(host.check(FACTS, None, shm=gone))["shm"]
    assert (finding.level, finding.text) == ("warning", f"{gone}: No such file or directory")
    monkeypatch.setattr(host, "_LITTLE_SPACE_BYTES", 1 << 62)
    finding = by_name(host.check(FACTS, None, tmp=tmp_path))["tmp"]
    assert finding.level == "warning"
    assert finding.advice.startswith("make room")
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding = by_name(host.check(FACTS, None, tmp=tmp_path))["tmp"]
    assert finding.text == f"{tmp_path} is not writable"


# -- network -----------------------------------------------------------------------------------


def look(settings: Dict[str, str], facts: List[HostFact] = FACTS) -> Dict[str, Finding]:
    return by_name(network.check(Settings.of({**NOTHING_SET, **settings}), facts, limit_s=5))


def with_address(name: str, why: str = "") -> List[HostFact]:
    return [*FACTS[:-1], HostFact("address", name, why)]


def test_without_a_job_the_network_is_only_described() -> None:
    found = look({})
    assert found["interfaces"].text == "interfaces: lo 127.0.0.1"
    assert found["own_address"].text == snapshot(
        "a worker or server here shows the others 127.0.0.1"
    )
    assert found["root"].text.startswith("DMLC_PS_ROOT_URI is not set")


def test_a_host_without_interfaces_is_a_problem() -> None:
    facts = [fact for fact in FACTS if fact.what != "interface"]
    assert look({}, facts)["interfaces"].level == "problem"


def test_the_setting_behind_the_own_address_is_named() -> None:
    assert look({"DMLC_INTERFACE": "l"})["own_address"].text.endswith("(DMLC_INTERFACE=l)")
    found = look({"DMLC_NODE_HOST": "lo"}, with_address("lo"))
    assert (found["own_address"].level, found["own_address"].text[-22:]) == (
        *("ok", "lo (DMLC_NODE_HOST=lo)"),
    )


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (with_address("", "DMLC_INTERFACE=x: no interface"), "DMLC_INTERFACE=x: no interface"),
        (with_address("203.0.113.9"), "DMLC_NODE_HOST=203.0.113.9: no address of this host"),
        (with_address("nosuch.invalid."), "DMLC_NODE_HOST=nosuch.invalid.: "),
    ],
)
def test_an_own_address_that_cannot_be_is_a_problem(facts: List[HostFact], said: str) -> None:
    finding = look({}, facts)["own_address"]
    assert finding.level == "problem"
    assert finding.text.startswith(said)


def with_route(shown: str, route: str) -> List[HostFact]:
    facts = [*FACTS[:-1], HostFact("interface", "docker0", "172.17.0.1")]
    return [*facts, HostFact("address", shown, ""), HostFact("route", route, "")]


@pytest.mark.parametrize(
    ("env", "shown", "route", "level", "advice"),
    [
        (
            {"DMLC_NODE_HOST": "docker0"},
            "docker0",
            "10.0.0.2",
            "warning",
            "DMLC_NODE_HOST=10.0.0.2",
        ),
        ({"DMLC_INTERFACE": "lo"}, "127.0.0.1", "10.0.0.2", "problem", "unset DMLC_INTERFACE"),
        ({"DMLC_NODE_HOST": "0.0.0.0"}, "0.0.0.0", "10.0.0.2", "problem", "unset DMLC_NODE_HOST"),
        ({}, "10.0.0.2", "10.0.0.2", "", ""),
        ({}, "127.0.0.1", "127.0.0.1", "", ""),
        ({"DMLC_ROLE": "scheduler"}, "172.17.0.1", "10.0.0.2", "", ""),
    ],
)
def test_an_address_that_peers_may_not_reach_is_told(
    env: Dict[str, str], shown: str, route: str, level: str, advice: str
) -> None:
    root = {"DMLC_PS_ROOT_URI": "192.0.2.1", "DMLC_PS_ROOT_PORT": "0"}
    found = look({**root, **env}, with_route(shown, route)).get("reach")
    assert (found.level if found else "") == level
    assert found is None or advice in found.advice


def test_a_name_that_stands_for_a_loopback_address_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # /etc/hosts of Debian has the host's own name there.
    row = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [row])
    settings = {"DMLC_PS_ROOT_PORT": "0", "DMLC_ROLE": "scheduler"}
    found = look({**settings, "DMLC_PS_ROOT_URI": "node7"})["root"]
    assert found.level == "warning"
    assert found.text == snapshot(
        "DMLC_PS_ROOT_URI=node7 (127.0.1.1): this host, a loopback address, which no other host "
        "reaches"
    )
    assert look({**settings, "DMLC_PS_ROOT_URI": "localhost"})["root"].level == "ok"


def test_ipv6_is_looked_at_as_ipv4_is() -> None:
    with socket.socket(socket.AF_INET6) as listening:
        try:
            listening.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        listening.listen(1)
        port = str(listening.getsockname()[1])
        settings = {"DMLC_PS_ROOT_URI": "[::1]", "DMLC_PS_ROOT_PORT": port}
        found = look({**settings, "DMLC_ROLE": "scheduler"}, with_address("::1"))
        assert "is in use" in found["root_port"].text
    found = look({**settings, "DMLC_ROLE": "worker"}, with_address("::1"))
    assert found["root_port"].text.startswith(f"[::1]:{port} can be reached, but no process")


@pytest.mark.parametrize(
    ("backend", "level"), [("auto", "ok"), ("kvstore", "problem"), ("passthrough", "problem")]
)
def test_the_lack_of_ipv6_in_mxnets_own_nodes_is_told(backend: str, level: str) -> None:
    settings = {"DMLC_PS_ROOT_URI": "::1", "DMLC_ROLE": "worker", "BYTESCHEDULER_BACKEND": backend}
    found = look(settings, with_address("::1"))["only_ours"]
    assert found.level == level
    assert "know only IPv4" in found.text


def test_by_ipv4_they_are_not_spoken_of() -> None:
    assert "only_ours" not in look({"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_ROLE": "worker"})


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """Return a socket that listens on loopback."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        yield listening


def root_at(listening: socket.socket, **more: str) -> Dict[str, str]:
    host_name, port = listening.getsockname()
    return {"DMLC_PS_ROOT_URI": host_name, "DMLC_PS_ROOT_PORT": str(port), **more}


def free_port_at(listening: socket.socket, **more: str) -> Dict[str, str]:
    settings = root_at(listening, **more)
    listening.close()
    return settings


def test_a_scheduler_finds_its_port_free(taken: socket.socket) -> None:
    finding = look(free_port_at(taken, DMLC_ROLE="scheduler"))["root_port"]
    assert finding.level == "ok"
    assert finding.text.endswith(" is free")


def test_a_scheduler_finds_its_port_taken(taken: socket.socket) -> None:
    finding = look(root_at(taken, DMLC_ROLE="scheduler"))["root_port"]
    assert finding.level == "problem"
    assert "is in use" in finding.text


def test_a_scheduler_may_take_any_port() -> None:
    settings = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "0"}
    found = look({**settings, "DMLC_ROLE": "scheduler"})
    assert found["root"].level == "ok"
    assert "root_port" not in found


def test_a_scheduler_must_be_where_its_address_is() -> None:
    settings = {"DMLC_PS_ROOT_URI": "203.0.113.9", "DMLC_PS_ROOT_PORT": "0"}
    found = look({**settings, "DMLC_ROLE": "scheduler"})
    assert found["root"].level == "problem"
    found = look({**settings, "DMLC_ROLE": "scheduler", "DMLC_USE_KUBERNETES": "1"})
    assert found["root"].level == "ok"


def test_a_port_that_is_not_ours_to_take_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "listen", refuse)
    settings = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "80"}
    finding = look({**settings, "DMLC_ROLE": "scheduler"})["root_port"]
    assert finding.level == "problem"


@pytest.mark.parametrize("role", ["server", "worker"])
def test_a_node_that_is_told_its_port_finds_it_free_or_taken(
    taken: socket.socket, role: str
) -> None:
    settings = {"DMLC_ROLE": role, "DMLC_PORT": str(taken.getsockname()[1])}
    assert look(settings)["own_port"].level == "problem"
    assert "own_port" not in look({**settings, "DMLC_LOCAL": "1"})  # it takes a file in /tmp
    taken.close()
    assert look(settings)["own_port"].level == "ok"
    assert "own_port" not in look({**settings, "DMLC_ROLE": "scheduler"})
    assert "own_port" not in look({**settings, "DMLC_PORT": "0"})


def test_a_name_that_cannot_be_resolved_is_a_problem() -> None:
    found = look({"DMLC_PS_ROOT_URI": "nosuch.invalid.", "DMLC_PS_ROOT_PORT": "9"})
    assert found["root"].level == "problem"
    assert "nosuch.invalid. cannot be resolved" in found["root"].text
    assert "root_port" not in found


@pytest.mark.parametrize("name", ["a..b", ".", "a" * 64 + ".example", os.fsdecode(b"\xff")])
def test_a_malformed_host_name_is_a_problem(name: str) -> None:
    found = look({"DMLC_PS_ROOT_URI": name}, with_address(name))
    assert masked(found["root"].text, NAME=name) == snapshot(
        "DMLC_PS_ROOT_URI=NAME cannot be resolved: this is no host name"
    )
    assert masked(found["own_address"].text, NAME=name) == snapshot(
        "DMLC_NODE_HOST=NAME: this is no host name"
    )


def test_a_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(LIMIT_S))
    try:
        with pytest.raises(OSError, match="no response in 0.1 s"):
            network.resolve("slow.example", 0.1)
    finally:
        answered.set()


def test_a_check_that_ends_in_time_returns_or_raises() -> None:
    assert findings.within(LIMIT_S, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        findings.within(LIMIT_S, lambda: 1 // 0)


def test_local_jobs_need_no_network() -> None:
    settings = {"DMLC_PS_ROOT_URI": "nosuch.invalid.", "DMLC_PS_ROOT_PORT": "9"}
    found = look({**settings, "DMLC_LOCAL": "yes"})
    assert found["root"].text == snapshot("DMLC_LOCAL: the nodes meet through files in /tmp")
    assert look({**settings, "DMLC_LOCAL": "no"})["root"].level == "problem"


def test_a_root_port_without_a_listener_is_a_warning(taken: socket.socket) -> None:
    finding = look(free_port_at(taken, DMLC_ROLE="worker"))["root_port"]
    assert finding.level == "warning"
    assert "no process listens there" in finding.text


@pytest.mark.parametrize(
    ("said", "level"),
    [
        (b"\xff\0\0\0\0\0\0\0\1\x7f\3", "ok"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "problem"),
        (b"\xff", "problem"),
        (b"", "problem"),
    ],
)
def test_the_kind_of_program_at_the_root_port_is_told(
    taken: socket.socket, said: bytes, level: str
) -> None:
    taken.settimeout(LIMIT_S)

    def answer() -> None:
        with contextlib.suppress(OSError):
            connection, _ = taken.accept()
            with connection:
                connection.settimeout(LIMIT_S)
                connection.sendall(said)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        finding = look(root_at(taken, DMLC_ROLE="worker"))["root_port"]
    finally:
        thread.join(LIMIT_S)
    assert finding.level == level


def test_a_peer_that_greets_byte_by_byte_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not done.wait(0.2):
                theirs.sendall(b"\xff")

    thread = threading.Thread(target=drip, daemon=True)
    with ours, theirs:
        thread.start()
        try:
            greeting = network._greeting(ours, 0.5)
        finally:
            done.set()
            thread.join(LIMIT_S)
    assert len(greeting) < network._GREETING_BYTES


def test_a_scheduler_node_is_known_when_it_answers() -> None:
    from bytescheduler._native import Node

    job = {"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1"}
    quiet = {"BYTESCHEDULER_LOG_LEVEL": "off"}
    node = Node.start({**job, **quiet, "DMLC_ROLE": "scheduler", "DMLC_PS_ROOT_PORT": "0"})
    try:
        finding = look({**job, "DMLC_PS_ROOT_PORT": str(node.port)})["root_port"]
    finally:
        node.close()
    assert finding.level == "ok"
    assert "the scheduler node answers" in finding.text


def test_a_root_that_cannot_be_reached_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise OSError(113, "No route to host")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    finding = look({"DMLC_PS_ROOT_URI": "203.0.113.9", "DMLC_PS_ROOT_PORT": "9"})["root_port"]
    assert finding.level == "problem"
    assert finding.text == snapshot("203.0.113.9:9 cannot be reached: No route to host")


# -- the whole report --------------------------------------------------------------------------


def invoke(*arguments: str) -> Result:
    return runner().invoke(doctor.command, list(arguments))


def test_the_report_names_every_area_and_counts(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_NODE_HOST", "127.0.0.1")  # there may be no other address
    result = invoke()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")][:-1] == [
        *("settings", "software", "host", "network", "rdma")
    ]
    assert lines[-1].startswith("0 problems, ")


def test_advice_stands_below_its_finding(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_NODE_HOST", "127.0.0.1")  # there may be no other address
    modules(numpy="__version__ = '1.26.4'")
    result = invoke()
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    index = next(i for i, line in enumerate(lines) if "numpy 1.26.4" in line)
    assert lines[index].startswith("  problem  numpy 1.26.4: ")
    assert lines[index + 1] == '           -> python -m pip install "numpy==1.23.5"'
    assert lines[-1].startswith("1 problem, ")


def test_the_report_as_json_has_the_same_findings(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_INTERFACE", "nosuch")
    result = invoke("--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["worst"], report["link"]) == ("problem", None)
    found = by_name([Finding(**row) for row in report["findings"]])
    assert found["own_address"].text.startswith("DMLC_INTERFACE=nosuch: no interface")
    assert found["settings"].text == snapshot("1 setting in the environment, all well-formed")
    assert found["kernels"].text in {
        f"servers sum with {name} kernels" for name in ("scalar", "avx2", "avx512", "avx512fp16")
    }


def test_the_report_escapes_characters_that_a_terminal_would_obey(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "a\x1b[2J\n..b")
    result = invoke()
    line = line_with("DMLC_PS_ROOT_URI=a\\x1b[2J\\n..b: ", result.stdout)
    assert line == snapshot(
        "  problem  DMLC_PS_ROOT_URI=a\\x1b[2J\\n..b: want an address or a host name"
    )
    assert "\x1b" not in result.stdout
    report = json.loads(invoke("--json").stdout)
    texts = [row["text"] for row in report["findings"]]
    assert line.partition("problem  ")[2] in texts


def test_no_advice_is_obeyed_by_a_terminal() -> None:
    text = findings.as_text(
        [Finding("network", "root", "problem", "a\nb", os.fsdecode(b"\x07\xff"))]
    )
    assert text == "network\n  problem  a\\nb\n           -> \\x07\\udcff\n"


def test_wrong_settings_are_problems_and_the_rest_is_still_looked_at(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_CREDITS", "1")
    monkeypatch.setenv("DMLC_NUM_WORKER", "many")
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "nosuch.invalid.")
    report = json.loads(invoke("--json").stdout)
    found = by_name([Finding(**row) for row in report["findings"]])
    assert "did you mean BYTESCHEDULER_CREDIT?" in found["BYTESCHEDULER_CREDITS"].text
    assert found["DMLC_NUM_WORKER"].text == snapshot("DMLC_NUM_WORKER=many: want a whole number")
    assert "nosuch.invalid. cannot be resolved" in found["root"].text
    assert found["kernels"].level == "ok"


def test_a_root_that_cannot_be_a_name_is_a_problem(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "a..b")
    result = invoke("--json")
    assert result.exit_code == 1
    found = by_name([Finding(**row) for row in json.loads(result.stdout)["findings"]])
    assert found["root"].text == snapshot(
        "DMLC_PS_ROOT_URI=a..b cannot be resolved: this is no host name"
    )


def test_a_name_that_is_no_text_is_a_wrong_setting(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, os.fsdecode(b"BYTESCHEDULER_\xff"), "1")
    result = invoke()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is no setting" in result.stderr


def test_the_command_imports_no_framework_itself(modules: Modules) -> None:
    """Importing MXNet may end or hang a process; that must never be the doctor's own."""
    program = (
        "import sys; from bytescheduler import doctor; doctor.examine(); "
        "assert not {'mxnet', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=LIMIT_S, check=False)
    assert done.returncode == 0
