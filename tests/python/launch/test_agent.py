"""The far end of `bslaunch -H`: what it refuses, obeys, and leaves behind when it is cut off."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Iterator, List

import pytest
from held_fifo import HeldFifo

from bytescheduler._launch.agent import Order
from bytescheduler._launch.launcher import node_command
from bytescheduler._native import version

LIMIT_S = 60
JOB = {
    "DMLC_ROLE": "worker",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9",
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "1",
}


def order(folder: pathlib.Path, command: List[str], /, **changes: object) -> Order:
    made = Order(version(), str(folder), command, dict(JOB), grace=0.3)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def start() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*node_command(), "--agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(text: str) -> "subprocess.CompletedProcess[str]":
    """Hang up only when it has ended: it ends its process at that."""
    with start() as process:
        if "\n" in text:
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.flush()
            process.wait(LIMIT_S)
        out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_a_check_runs_nothing(tmp_path: pathlib.Path) -> None:
    given = order(tmp_path, ["touch", "ran"], check=True)
    assert answer(given.as_line()).stdout == "ok \n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"command": ["nope-x"]}, 127, "error command not found: nope-x"),
        ({"command": ["/etc/passwd"]}, 126, "error cannot run /etc/passwd: permission denied"),
        ({"folder": "/no/such"}, 1, "error cannot enter the folder /no/such: No such file"),
        ({"version": "0.0.0"}, 1, ", and this host 0.0.0"),
        ({"env": {**JOB, "PATH": "/no"}, "command": ["sh", "-c", "exit 3"]}, 3, "exit 3"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused_in_a_line(
    tmp_path: pathlib.Path, changes: "dict[str, object]", code: int, text: str
) -> None:
    """The last one can: the host's own PATH comes behind that of the order."""
    done = answer(order(tmp_path, ["true"], **changes).as_line())
    assert done.returncode == code
    assert text in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("text", ["", "\n", "no JSON\n", "[]\n", '{"version": 1}\n'])
def test_a_malformed_order_is_refused(text: str) -> None:
    done = answer(text)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_arguments_and_variables_arrive_as_they_are(tmp_path: pathlib.Path) -> None:
    odd = "a\n'b' \"c\" $HOME `d` \\ \udcff é"
    program = "import json, os, sys; print(json.dumps([sys.argv[1], os.environ['ODD']]))"
    given = order(tmp_path, [sys.executable, "-c", program, odd], env={**JOB, "ODD": odd})
    done = answer(given.as_line())
    assert done.returncode == 0
    assert json.loads(done.stderr.splitlines()[-1]) == [odd, odd]
    assert done.stdout == "hello \nexit 0\n"


@pytest.fixture
def holders(tmp_path: pathlib.Path) -> Iterator[HeldFifo]:
    with HeldFifo(tmp_path) as made:
        yield made


@pytest.mark.parametrize("how", ["its input ends", "SIGTERM", "the order's signal"])
def test_it_ends_all_that_it_started(tmp_path: pathlib.Path, holders: HeldFifo, how: str) -> None:
    script = 'exec 9>"$1"; trap "" TERM; (setsid sleep 1000 &); echo x >&9; sleep 1000; sleep 1000'
    given = order(tmp_path, ["sh", "-c", script, "sh", holders.path])
    with start() as process:
        assert process.stdin is not None
        process.stdin.write(given.as_line())
        process.stdin.flush()
        holders.await_started(1)
        if how == "SIGTERM":
            os.kill(process.pid, signal.SIGTERM)
        elif how == "its input ends":
            process.stdin.close()
        else:
            process.stdin.write(f"junk\n99999\n{int(signal.SIGKILL)}\n")
            process.stdin.flush()
        holders.await_gone()
        assert process.wait(LIMIT_S) > 128
