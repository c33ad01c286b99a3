"""The launcher of jobs: environments, places, ends, and that nothing stays behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Dict, Iterator, List

import pytest
from held_fifo import HeldFifo

from bytescheduler._launch.launcher import (
    LOOPBACK,
    Exited,
    Interrupt,
    Launcher,
    Listening,
    Place,
    node_command,
)
from bytescheduler._process.child import Child, Streams

PIPED = Streams(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
LIMIT_S = 60.0
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
# Holds the FIFO sys.argv[1] open, and so does a child of it; neither heeds SIGTERM.
STUBBORN = 'exec 9>"$1"; trap "" TERM; (sleep 1000; :) & echo x >&9; sleep 1000; wait'
# A scheduler node, as far as a launcher knows one.
TELLS = "import os, sys; os.write(int(sys.argv[2]), b'4242\\n')"


def python(program: str) -> List[str]:
    return [sys.executable, "-c", program]


def soon() -> float:
    return time.monotonic() + LIMIT_S


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with Launcher(2, 1, {"PATH": "/usr/bin:/bin"}) as made:
        yield made


@pytest.fixture
def holders(tmp_path: pathlib.Path) -> Iterator[HeldFifo]:
    with HeldFifo(tmp_path) as made:
        yield made


def shown(launcher: Launcher, role: str, place: Place = LOOPBACK, **env: str) -> Dict[str, str]:
    child = launcher.start(role, python(SHOW), place=place, env=env, streams=PIPED)
    assert child.stdout is not None
    found: Dict[str, str] = json.loads(child.stdout.read())
    assert child.wait(LIMIT_S) == 0
    return found


# -- what a process gets -----------------------------------------------------------------------


def test_every_process_gets_its_place_in_the_job() -> None:
    base = {"A": "a", "B": "b", "DMLC_RANK": "7", "DMLC_PORT": "9", "DMLC_NODE_HOST": "10.0.0.9"}
    with Launcher(3, 2, base, root=Place("10.0.0.1"), port=9091) as launcher:
        found = shown(launcher, "server", Place("10.0.0.2"), B="c", DMLC_PORT="12")
        assert found.items() >= {"A": "a", "B": "c", "DMLC_ROLE": "server"}.items()
        assert (found["DMLC_PS_ROOT_URI"], found["DMLC_PS_ROOT_PORT"]) == ("10.0.0.1", "9091")
        assert (found["DMLC_NUM_WORKER"], found["DMLC_NUM_SERVER"]) == ("3", "2")
        assert (found["DMLC_NODE_HOST"], found["DMLC_PORT"]) == ("10.0.0.2", "12")
        assert "DMLC_RANK" not in found
        assert "DMLC_PORT" not in shown(launcher, "worker")


def test_a_command_runs_in_its_place(launcher: Launcher) -> None:
    place = Place("10.0.0.3", ["env", "AT=there"])
    assert shown(launcher, "worker", place)["AT"] == "there"
    assert "AT" not in shown(launcher, "worker")


def test_the_job_runs_in_its_folder(tmp_path: pathlib.Path) -> None:
    with Launcher(1, 1, {}, folder=tmp_path) as launcher:
        child = launcher.start("worker", ["/bin/pwd"], streams=PIPED)
        assert child.stdout is not None
        assert child.stdout.read() == f"{tmp_path}\n"


@pytest.mark.parametrize("sessions", [False, True])
def test_each_process_has_a_group_of_its_own_and_a_session_if_it_is_wanted(sessions: bool) -> None:
    shows = python("import os; print(os.getpgid(0), os.getsid(0))")
    with Launcher(1, 1, {}, sessions=sessions) as launcher:
        child = launcher.start("worker", shows, streams=PIPED)
        assert child.stdout is not None
        group, session = map(int, child.stdout.read().split())
    assert group == child.pid
    assert session == (child.pid if sessions else os.getsid(0))


def test_a_command_that_cannot_run_raises(launcher: Launcher) -> None:
    with pytest.raises(FileNotFoundError):
        launcher.start("worker", ["/nowhere/at/all"])
    with pytest.raises(FileNotFoundError):
        launcher.start_scheduler(["/nowhere/at/all"])
    assert launcher.children == []


# -- the cause of a failure ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [
        ("worker 1 gave up: uncaught ValueError: mine", "worker 1"),
        ("lost worker 1 (127.0.0.1:4711): connection closed", "worker 1"),
        ("lost server 0 (127.0.0.1:4711): connection closed", "server 0"),
        ("server 0 was ended: it got SIGTERM", "server 0"),
        ("rendezvous: after 60 s still missing 1 of 2 workers", "worker 0"),
        ("lost worker 11 (127.0.0.1:4711): connection closed", "worker 0"),
        ("", "worker 0"),
    ],
)
def test_the_verdict_of_the_scheduler_node_names_the_cause(
    launcher: Launcher, verdict: str, cause: str
) -> None:
    line = f"os.write(int(sys.argv[2]), {verdict.encode()!r} + b'\\n'); " if verdict else ""
    scheduler = launcher.start_scheduler(python(f"{TELLS}; {line}sys.exit(1)"))
    assert launcher.await_port(soon())
    for name in ("server 0", "worker 0", "worker 1"):  # they fail in this order
        launcher.await_ends([launcher.start(name[:6], ["false"], name=name)], soon())
    launcher.await_ends([scheduler], soon())
    while launcher.verdict != verdict:
        assert launcher.next_event(soon()) is not None
    assert launcher.cause().name == cause


def test_a_lost_server_names_the_worker_that_hosts_it() -> None:
    with Launcher(2, 0, os.environ) as launcher:
        tells = (
            "os.write(int(sys.argv[2]), b'lost server 1 (127.0.0.1:4711): connection closed\\n')"
        )
        launcher.start_scheduler(python(f"{TELLS}; {tells}"))
        children = [launcher.start("worker", ["false"], name=f"worker {i}") for i in range(2)]
        launcher.await_ends(children, soon())
        while not launcher.verdict:
            assert launcher.next_event(soon()) is not None
        assert launcher.cause() is children[1]
        told = "lost worker 1 (its server 127.0.0.1:4711): connection closed"
        assert launcher.verdict == told
        launcher.verdict = "server 1 was ended: it got SIGTERM"
        assert launcher.cause() is children[1]


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            "worker 1 gave up: uncaught KeyError: mine (reported by worker 1)",
            ": uncaught KeyError: mine",
        ),
        ("worker 1 gave up: (text) in brackets", ": (text) in brackets"),
        ("worker 1 gave up: exit code 1, after KeyError: 'mine'", ", after KeyError: 'mine'"),
        ("worker 1 gave up: exit code 1", ""),
        ("worker 0 gave up: exit code 1", ""),
        ("lost worker 1 (127.0.0.1:4711): connection closed", ""),
        ("", ""),
    ],
)
def test_a_process_that_gave_up_is_described_with_its_reason(
    launcher: Launcher, verdict: str, text: str
) -> None:
    failed = launcher.start("worker", ["false"], name="worker 1")
    launcher.await_ends([failed], soon())
    launcher.verdict = verdict
    assert launcher.describe(failed) == f"worker 1 ended with exit code 1{text}"


# -- where the scheduler node listens ----------------------------------------------------------


def test_a_scheduler_node_reports_its_port_and_the_other_nodes_get_it(launcher: Launcher) -> None:
    launcher.start_scheduler(python(TELLS))
    assert launcher.await_port(soon())
    assert launcher.port == 4242
    assert shown(launcher, "server")["DMLC_PS_ROOT_PORT"] == "4242"


def test_a_scheduler_node_that_ends_before_it_listens_is_noticed(launcher: Launcher) -> None:
    launcher.start_scheduler(python("pass"))
    assert not launcher.await_port(soon())


def test_a_scheduler_node_that_never_listens_is_waited_for_until_the_deadline(
    launcher: Launcher,
) -> None:
    launcher.start_scheduler(["sleep", "1000"])
    assert not launcher.await_port(time.monotonic() + 0.1)


def test_a_reserved_port_is_known_from_the_start(launcher: Launcher) -> None:
    port = launcher.reserve_port()
    shows = python(f"import sys; assert len(sys.argv) == 1; {SHOW}")
    child = launcher.start_scheduler(shows, streams=PIPED)
    assert child.stdout is not None
    assert json.loads(child.stdout.read())["DMLC_PS_ROOT_PORT"] == str(port) != "0"
    assert launcher.await_port()


def test_our_own_node_takes_part_in_that(launcher: Launcher) -> None:
    launcher.start_scheduler(node_command())
    assert launcher.await_port(soon())
    assert launcher.port > 0


# -- ends --------------------------------------------------------------------------------------


def test_a_good_end_of_all_is_no_failure(launcher: Launcher) -> None:
    for role in ("scheduler", "server", "worker"):
        launcher.start(role, ["true"])
    assert launcher.await_good_end(LIMIT_S) is None
    assert [child.code for child in launcher.children] == [0, 0, 0]


def test_a_failure_is_told_while_other_processes_still_run(launcher: Launcher) -> None:
    launcher.start("server", ["sleep", "1000"])
    failed = launcher.start("worker", ["sh", "-c", "exit 3"], name="worker 0")
    assert launcher.await_good_end(LIMIT_S) is failed
    assert failed.describe() == "worker 0 ended with exit code 3"


def test_one_that_does_not_end_is_named(launcher: Launcher) -> None:
    launcher.start("worker", ["true"])
    launcher.start("server", ["sleep", "1000"])
    with pytest.raises(subprocess.TimeoutExpired, match="sleep"):
        launcher.await_good_end(0.3)


@pytest.mark.parametrize("how", ["exit 3", "kill -9 $$"])
def test_the_cause_is_the_worker_though_a_server_ends_first(launcher: Launcher, how: str) -> None:
    server = launcher.start("server", ["sh", "-c", "exit 1"])
    launcher.await_ends([server], soon())
    assert launcher.cause() is server
    worker = launcher.start("worker", ["sh", "-c", how])
    launcher.await_ends([worker], soon())
    later = launcher.start("worker", ["sh", "-c", "exit 4"])
    launcher.await_ends([later], soon())
    assert launcher.failed == [server, worker, later]
    assert launcher.cause() is worker


def test_a_killed_server_is_the_cause(launcher: Launcher) -> None:
    for how in ("exit 1", "kill -9 $$"):
        launcher.await_ends([launcher.start("server", ["sh", "-c", how])], soon())
    assert launcher.cause().describe() == "server was ended by SIGKILL"


def test_the_first_of_several_to_end_is_found_also_later(launcher: Launcher) -> None:
    never = launcher.start("server", ["sleep", "1000"])
    second, first = (launcher.start("worker", ["cat"], streams=PIPED) for _ in range(2))
    for child in (first, second):
        assert child.stdin is not None
        child.stdin.close()
        child.wait(LIMIT_S)
        assert launcher.await_first([never, child], soon()) is child
    assert launcher.await_first([second, first]) is first
    assert launcher.await_first([never], time.monotonic() + 0.1) is None


def test_an_interrupt_ends_a_wait_and_other_events_do_not(launcher: Launcher) -> None:
    child = launcher.start("worker", ["sleep", "1000"])
    interrupt = Interrupt()
    launcher.put("a remark")
    threading.Timer(0.1, launcher.put, [interrupt]).start()
    assert launcher.await_ends([child], soon()) is interrupt
    assert launcher.await_ends([child], time.monotonic() + 0.1) is None
    child.signal(signal.SIGTERM)
    assert launcher.next_event(soon()) == Exited(child)
    assert child.code == -signal.SIGTERM
    assert launcher.next_event(time.monotonic()) is None


def test_a_port_and_an_end_are_two_events(launcher: Launcher) -> None:
    child = launcher.start_scheduler(python(TELLS))
    found = [launcher.next_event(soon()) for _ in range(2)]
    assert Listening(4242) in found
    assert Exited(child) in found


# -- nothing stays behind ----------------------------------------------------------------------


def test_at_the_end_all_workers_and_their_children_are_killed(holders: HeldFifo) -> None:
    with Launcher(1, 1, {"PATH": "/usr/bin:/bin"}) as launcher:
        for _ in range(2):
            launcher.start("worker", ["sh", "-c", STUBBORN, "sh", holders.path])
        holders.await_started(2)
    holders.await_gone()
    assert [child.code for child in launcher.children] == [-signal.SIGKILL] * 2


def test_a_process_left_in_the_background_is_ended_too(holders: HeldFifo) -> None:
    leaves = 'exec 9>"$1"; (sleep 1000; :) & echo x >&9'
    with Launcher(1, 1, {"PATH": "/usr/bin:/bin"}) as launcher:
        child = launcher.start("worker", ["sh", "-c", leaves, "sh", holders.path])
        assert child.wait(LIMIT_S) == 0
    holders.await_gone()


def test_an_end_asks_first_and_kills_then(
    monkeypatch: pytest.MonkeyPatch, holders: HeldFifo, launcher: Launcher
) -> None:
    monkeypatch.setattr("bytescheduler._launch.launcher._TERM_S", 0.3)
    asked = launcher.start("scheduler", ["sleep", "1000"])
    stubborn = launcher.start("worker", ["sh", "-c", STUBBORN, "sh", holders.path])
    holders.await_started(1)
    launcher.end_all()
    holders.await_gone()
    assert (asked.code, stubborn.code) == (-signal.SIGQUIT, -signal.SIGKILL)


def test_a_process_that_has_ended_keeps_its_number_until_it_is_given_back() -> None:
    with Child.start("it", ["true"], {}) as child:
        child.wait(LIMIT_S)
        assert pathlib.Path(f"/proc/{child.pid}").exists()
    assert not pathlib.Path(f"/proc/{child.pid}").exists()
    child.signal_group(signal.SIGKILL)  # of nobody


def test_a_launcher_imports_no_framework() -> None:
    program = "import sys; from bytescheduler._launch import launcher; print(*sys.modules)"
    shown = subprocess.run(python(program), stdout=subprocess.PIPE, check=True, text=True)
    assert "mxnet" not in shown.stdout.split()
