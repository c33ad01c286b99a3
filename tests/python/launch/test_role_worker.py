"""`DMLC_ROLE=worker bslaunch COMMAND`: what the command gets, and when it is ended."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, Dict, Iterator, List, Optional

import pytest
from held_fifo import HeldFifo
from inline_snapshot import snapshot
from sentences import line_with, masked
from test_launch import BSLAUNCH, JOB, LIMIT_S, bslaunch, start

from bytescheduler._process import family
from bytescheduler._started import ready

FreePort = Callable[[], int]
WORKER = {**JOB, "DMLC_ROLE": "worker"}
PYTHON = [sys.executable, "-c"]
# Holds the FIFO sys.argv[1] for as long as it lives, and never ends by itself.
HELD = "import signal, sys; f = open(sys.argv[1], 'w'); f.write('x\\n'); f.flush(); {then}"
FOR_EVER = HELD.format(then="signal.pause()")


@pytest.fixture
def holders(tmp_path: pathlib.Path) -> Iterator[HeldFifo]:
    with HeldFifo(tmp_path) as made:
        yield made


@pytest.fixture
def scheduler() -> Iterator[socket.socket]:
    """Stands in for a scheduler node: it can be reached."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        yield listener


def start_impatient(
    command: List[str], cwd: pathlib.Path, port: int, timeout_s: float
) -> "subprocess.Popen[str]":
    """Start `command` as bslaunch does for a worker, with shorter times."""
    program = (
        "import os, sys; sys.path = [p for p in sys.path if p]; "
        "from bytescheduler._launch import role_worker as w; "
        "w._GRACE_S = w._SAY_EVERY_S = 0.3; w._CONNECT_EVERY_S = 0.02; "
        f"where = w.Rendezvous('127.0.0.1', {port}, False, {timeout_s}, True); "
        f"sys.exit(w.run({command!r}, dict(os.environ), where, 5.0))"
    )
    return subprocess.Popen(
        [*PYTHON, program], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("given", "gets"),
    [
        ({}, "native"),
        ({"BYTESCHEDULER_BACKEND": ""}, "native"),
        ({"BYTESCHEDULER_BACKEND": "auto"}, "native"),
        ({"BYTESCHEDULER_BACKEND": "kvstore"}, "kvstore"),
    ],
)
def test_it_gets_our_back_end_unless_told_otherwise(
    tmp_path: pathlib.Path, given: Dict[str, str], gets: str
) -> None:
    result = bslaunch(
        "sh", "-c", "echo $BYTESCHEDULER_BACKEND", cwd=tmp_path, **{**WORKER, **given}
    )
    assert (result.returncode, result.stdout) == (0, gets + "\n")


def test_with_a_secret_mxnets_own_store_is_given_a_reason_to_fail(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of this test")
    secret.chmod(0o600)
    given = {**WORKER, "BYTESCHEDULER_SECRET_FILE": str(secret)}
    result = bslaunch("sh", "-c", "echo $DMLC_PS_VAN_TYPE", cwd=tmp_path, **given)
    assert line_with("import bytescheduler.mxnet", result.stdout) == snapshot(
        "none in a job with BYTESCHEDULER_SECRET_FILE; import bytescheduler.mxnet before the "
        "store is created, and add kvs = ScheduledKVS(kvs)"
    )


@pytest.mark.parametrize(
    ("script", "code"), [("exit 5", 5), ("kill -9 $$", 137), ("kill -6 $$", 134), ("exit 0", 0)]
)
def test_its_exit_code_passes_through(tmp_path: pathlib.Path, script: str, code: int) -> None:
    assert bslaunch("sh", "-c", script, cwd=tmp_path, **WORKER).returncode == code


def test_it_shares_process_group_and_input(tmp_path: pathlib.Path) -> None:
    program = "import os; print(os.getpgrp(), input())"
    source, target = os.pipe()
    os.write(target, b"typed\n")
    os.close(target)
    result = subprocess.run(
        [*BSLAUNCH, *PYTHON, program],
        cwd=tmp_path,
        env={**os.environ, **WORKER},
        stdin=source,
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
        text=True,
        check=True,
    )
    os.close(source)
    assert result.stdout == f"{os.getpgrp()} typed\n"


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT]
)
def test_signals_are_passed_on(
    tmp_path: pathlib.Path, holders: HeldFifo, number: signal.Signals
) -> None:
    then = f"signal.signal({int(number)}, lambda *_: sys.exit(9)); f.write('y\\n'); f.flush()"
    program = HELD.format(then=then + "\nwhile True: signal.pause()")
    with start([*PYTHON, program, holders.path], tmp_path, **WORKER) as process:
        holders.await_started(2)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 9
        process.communicate(timeout=LIMIT_S)
    holders.await_gone()


# Passes through the wait for a signal, then saves for a while and ends with 7.
SAVES = HELD.format(
    then="import time; heard = []\n"
    "for n in (1, 10, 12, 14, 15): signal.signal(n, lambda n, _: heard.append(n))\n"
    "f.write('x\\n'); f.flush()\n"
    "while not heard: time.sleep(0.02)\n"
    "f.write('x\\n'); f.flush(); time.sleep(float(sys.argv[2])); print('saved'); sys.exit(7)"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGALRM])
@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; exit $?', "sh"]])
def test_after_a_signal_it_has_time_to_save(
    tmp_path: pathlib.Path, holders: HeldFifo, number: signal.Signals, wrapper: List[str]
) -> None:
    command = [*wrapper, *PYTHON, SAVES, holders.path, "0.5"]
    with start(command, tmp_path, **WORKER) as process:
        holders.await_started(2)
        process.send_signal(number)
        process.send_signal(number)  # as timeout(1) does, to the process and to its group
        out, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (7, "saved\n")
    holders.await_gone()


def test_a_signal_to_the_whole_group_leaves_the_program_behind_a_shell_its_time(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    command = [*BSLAUNCH, "sh", "-c", '"$@"; exit $?', "sh", *PYTHON, SAVES, holders.path, "0.5"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **WORKER},
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        holders.await_started(2)
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (143, "saved\n")  # the shell was ended by the signal
    holders.await_gone()


# Tells each SIGTERM that it hears, and ends when none came for a while.
TELLS = HELD.format(
    then="import os, time; heard = []\n"
    "signal.signal(15, lambda *_: (heard.append(1), print('heard', flush=True)))\n"
    "os.write(f.fileno(), b'x\\n')\n"
    "while not heard: time.sleep(0.05)\n"
    "end = time.monotonic() + 0.8\n"
    "while time.monotonic() < end: time.sleep(0.05)"
)


@pytest.mark.parametrize("hearing", ["bslaunch", "group", "bslaunch and group", "each process"])
def test_a_program_hears_a_signal_once_whoever_else_gets_it(
    tmp_path: pathlib.Path, holders: HeldFifo, hearing: str
) -> None:
    with subprocess.Popen(
        [*BSLAUNCH, *PYTHON, TELLS, holders.path],
        cwd=tmp_path,
        env={**os.environ, **WORKER},
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        holders.await_started(2)
        each = family.members([process.pid])
        if "bslaunch" in hearing or hearing == "each process":
            process.send_signal(signal.SIGTERM)
        if "group" in hearing:
            os.killpg(process.pid, signal.SIGTERM)
        if hearing == "each process":
            family.send(each, signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "heard\n")
    holders.await_gone()


@pytest.mark.parametrize(
    ("grace", "again"), [("3", None), ("1000", signal.SIGTERM), ("1000", signal.SIGINT)]
)
def test_a_worker_is_ended_with_its_children_when_its_time_is_over(
    tmp_path: pathlib.Path, holders: HeldFifo, grace: str, again: Optional[signal.Signals]
) -> None:
    script = "(trap '' TERM; sleep 1000; :) & \"$@\"; exit $?"
    command = ["sh", "-c", f'exec 9>"$0"; {script}', holders.path]
    command += [*PYTHON, SAVES, holders.path, "1000"]
    with start(["--grace", grace, *command], tmp_path, **WORKER) as process:
        holders.await_started(2)
        process.send_signal(signal.SIGTERM)
        holders.await_started(1)
        if again is not None:
            time.sleep(0.6)  # sooner it would be the same signal
            process.send_signal(again)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert line_with("ending it", err) == snapshot(
        "bslaunch: the worker has had its time to end; ending it"
    )
    holders.await_gone()


def test_a_process_that_outlives_a_signalled_worker_is_ended(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    script = 'exec 9>"$1"; (trap "" TERM; setsid sleep 1000; :) & trap "exit 3" TERM; echo x >&9'
    command = ["sh", "-c", f"{script}; while :; do sleep 0.05; done", "sh", holders.path]
    with start(command, tmp_path, **WORKER) as process:
        holders.await_started(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 3
        process.communicate(timeout=LIMIT_S)
    holders.await_gone()


def test_a_signal_that_ends_it_gives_128_and_its_number(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    with start([*PYTHON, FOR_EVER, holders.path], tmp_path, **WORKER) as process:
        holders.await_started(1)
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143


def test_a_signal_that_was_ignored_stays_so(tmp_path: pathlib.Path, holders: HeldFifo) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        job = start([*PYTHON, FOR_EVER, holders.path], tmp_path, **WORKER)
    finally:
        signal.signal(signal.SIGHUP, before)
    with job as process:
        holders.await_started(1)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143


def test_even_sigkill_for_us_ends_it(tmp_path: pathlib.Path, holders: HeldFifo) -> None:
    with start([*PYTHON, FOR_EVER, holders.path], tmp_path, **WORKER) as process:
        holders.await_started(1)
        process.kill()
        process.communicate(timeout=LIMIT_S)
    holders.await_gone()


# -- the scheduler node ------------------------------------------------------------------------


def test_without_a_scheduler_node_it_is_ended(
    tmp_path: pathlib.Path, holders: HeldFifo, free_port: FreePort
) -> None:
    # It does not heed SIGTERM either.
    program = HELD.format(then="signal.signal(15, signal.SIG_IGN)\nwhile True: signal.pause()")
    port = free_port()
    with start_impatient([*PYTHON, program, holders.path], tmp_path, port, 1.5) as process:
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    refused = f"(127.0.0.1:{port}: Connection refused)"
    assert f"bslaunch: waiting for the scheduler node at 127.0.0.1:{port} {refused}\n" in err
    why = f"no response from the scheduler node at 127.0.0.1:{port} in 1.5 s {refused}"
    assert f"{why}; ending the worker" in err
    holders.await_gone()


def test_the_command_says_so_too(
    tmp_path: pathlib.Path, holders: HeldFifo, free_port: FreePort
) -> None:
    env = {**WORKER, "BYTESCHEDULER_TIMEOUT": "100ms", "DMLC_PS_ROOT_PORT": str(free_port())}
    result = bslaunch(*PYTHON, FOR_EVER, holders.path, cwd=tmp_path, **env)
    assert result.returncode == 1
    assert f"scheduler node at 127.0.0.1:{env['DMLC_PS_ROOT_PORT']} in 0.1 s" in result.stderr
    holders.await_gone()


def test_when_the_scheduler_node_goes_before_the_job_began_it_is_ended(
    tmp_path: pathlib.Path, holders: HeldFifo, scheduler: socket.socket
) -> None:
    port = scheduler.getsockname()[1]
    with start_impatient([*PYTHON, FOR_EVER, holders.path], tmp_path, port, 60.0) as process:
        scheduler.accept()[0].close()
        holders.await_started(1)
        scheduler.close()
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert masked(line_with("the scheduler node at", err), PORT=port) == snapshot(
        "bslaunch: the scheduler node at 127.0.0.1:PORT ended before this worker was in the job; "
        "its output says why; ending the worker"
    )
    holders.await_gone()


@pytest.mark.parametrize(("told", "code"), [(False, 1), (True, 134)])
def test_the_meaning_of_an_abort_depends_on_membership_in_the_job(
    tmp_path: pathlib.Path, holders: HeldFifo, scheduler: socket.socket, told: bool, code: int
) -> None:
    then = (
        "import os; sys.path = [p for p in sys.path if p]\n"
        "from bytescheduler._started import ready\n"
        f"if {told}: ready.tell()\n"
        # Blocked until it is waited for: one that came right before a pause would be slept over.
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); f.write('y\\n'); f.flush()\n"
        "signal.sigwait([signal.SIGUSR1]); os.abort()"
    )
    port = scheduler.getsockname()[1]
    command = [*PYTHON, HELD.format(then=then), holders.path]
    with start_impatient(command, tmp_path, port, 60.0) as process:
        for _ in range(1 if told else 2):  # at the second look the first has been noted
            scheduler.accept()[0].close()
        holders.await_started(2)
        process.send_signal(signal.SIGUSR1)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code
    assert (f"if the scheduler node at 127.0.0.1:{port} did that, its output" in err) != told
    holders.await_gone()


def test_a_worker_that_is_in_the_job_is_left_alone(
    tmp_path: pathlib.Path, scheduler: socket.socket
) -> None:
    # It lives on for longer than all times that could end it, then ends well.
    program = (
        "import sys, time; sys.path = [p for p in sys.path if p]; "
        "from bytescheduler._started import ready; input(); ready.tell(); time.sleep(3)"
    )
    port = scheduler.getsockname()[1]
    source, target = os.pipe()
    stdin = os.dup(0)
    os.dup2(source, 0)
    try:
        process = start_impatient([*PYTHON, program], tmp_path, port, 0.5)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(source)
    with process:
        scheduler.accept()[0].close()  # it has been seen
        os.write(target, b"\n")
        os.close(target)
        _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (0, "")


# -- the word that it is in the job ------------------------------------------------------------


def test_the_word_is_heard_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = ready.Listener()
    assert not listener.heard()
    monkeypatch.setenv(ready.NAME, listener.name)
    ready.tell()
    assert listener.heard()
    assert not listener.heard()
    listener.close()
    ready.tell()  # to nobody


def test_a_wait_is_known_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = ready.Listener()
    monkeypatch.setenv(ready.NAME, listener.name)
    ready.tell_place("here")
    ready.tell_wait()
    ready.tell_left("here")  # by another process, say
    ready.tell_register()  # it waits for that, too
    assert listener.waits()
    assert listener.waits()
    ready.tell()
    assert not listener.waits()
    ready.tell_wait()
    assert not listener.heard()  # no end of a wait
    listener.close()


def test_the_first_word_ends_the_silence_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = ready.Listener()
    assert listener.is_silent()
    monkeypatch.setenv(ready.NAME, listener.name)
    ready.tell_register()
    assert not listener.is_silent()
    assert not listener.heard()  # no end of a wait
    assert not listener.is_silent()
    assert not listener.waits()
    listener.close()


def test_places_that_were_left_without_a_reason_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = ready.Listener()
    monkeypatch.setenv(ready.NAME, listener.name)
    for place in ("held", "left", "given up"):
        ready.tell_place(place)
    ready.tell_left("left")
    ready.tell_left("given up", has_reason=True)
    assert listener.unexplained_places() == ["held", "left"]
    assert listener.held_places() == ["held"]
    listener.close()


@pytest.mark.parametrize("name", ["", "7", "no such socket", "x" * 500])
def test_a_name_that_is_none_does_no_harm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(ready.NAME, name)
    ready.tell()
