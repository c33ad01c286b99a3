"""`run_dist.sh` with stand-ins for ssh and bslaunch: what it prints, passes on, and ends."""

import os
import pathlib
import shutil
import signal
import subprocess
from typing import Dict, List

import pytest
from held_fifo import HeldFifo

SCRIPT = (
    pathlib.Path(__file__).resolve().parents[3] / "example" / "image-classification" / "run_dist.sh"
)
HOSTS = "scheduler 10.0.0.1\nserver 10.0.0.1\nserver 10.0.0.2\nworker 10.0.0.1\nworker 10.0.0.2\n"
LIMIT_S = 60

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


class Hosts:
    """A hosts file, an ssh that runs the command here, and a bslaunch of the test's own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.file = folder / "hosts.txt"
        self.file.write_text(HOSTS)
        # As with ssh: options, the place, the command; ends what it runs when it ends.
        self._write("ssh", 'shift 3; echo "$1" >>"$SSH_LOG"; exec sh -c "$2"')
        self.bslaunch("exit 0")

    def _write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def bslaunch(self, body: str) -> None:
        self._write("bslaunch", body)

    def env(self, **extra: str) -> Dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SSH_LOG": str(self.folder / "ssh.log"),
            "GRACE": "0.3",
            **extra,
        }

    def start(self, *arguments: str, **extra: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(SCRIPT), *arguments],
            cwd=self.folder,
            env=self.env(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        with self.start(*arguments, **extra) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Hosts:
    return Hosts(tmp_path)


# -- --print and the hosts file ----------------------------------------------------------------


def test_print_shows_each_command_and_runs_none(hosts: Hosts) -> None:
    hosts.bslaunch("touch ran")
    result = hosts.run("--print", "hosts.txt", "--network", "mlp", PORT="1234")
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0::2] == ["# on 10.0.0.1"] * 2 + [
        "# on 10.0.0.2",
        "# on 10.0.0.1",
        "# on 10.0.0.2",
    ]
    common = (
        "'DMLC_PS_ROOT_URI=10.0.0.1' 'DMLC_PS_ROOT_PORT=1234' 'DMLC_NUM_WORKER=2' "
        "'DMLC_NUM_SERVER=2'"
    )
    start = f"cd '{SCRIPT.parent}' && exec env"
    assert lines[1] == (
        f"{start} 'DMLC_ROLE=scheduler' {common} 'DMLC_NODE_HOST=10.0.0.1' 'bslaunch'"
    )
    assert lines[9] == (
        f"{start} 'DMLC_ROLE=worker' {common} 'DMLC_NODE_HOST=10.0.0.2' 'bslaunch' 'python3' "
        "'train_mnist.py' '--network' 'mlp'"
    )
    assert not (hosts.folder / "ssh.log").exists()


def test_a_printed_command_keeps_every_character(hosts: Hosts) -> None:
    hosts.bslaunch('printf "%s|" "$BYTESCHEDULER_X" "$@"')
    odd = "a b 'c' \"d\" $HOME `e` \\f *"
    result = hosts.run("--print", "hosts.txt", odd, BYTESCHEDULER_X=odd, SCRIPT="other.py")
    command = result.stdout.splitlines()[-1]
    ran = subprocess.run(
        ["sh", "-c", command], env=hosts.env(), stdout=subprocess.PIPE, text=True, check=True
    )
    assert ran.stdout == f"{odd}|python3|other.py|{odd}|"


def test_comments_blanks_and_line_ends_of_any_kind_are_read(hosts: Hosts) -> None:
    hosts.file.write_text(
        "# all of it\r\n\r\nscheduler\t10.0.0.1 # here\r\n  # more\nserver box\nworker me@10.0.0.2"
    )
    result = hosts.run("--print", "hosts.txt")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0::2] == ["# on 10.0.0.1", "# on box", "# on me@10.0.0.2"]
    commands = result.stdout.splitlines()[1::2]
    # A name is no address that a node can listen on; a user is none of the nodes' business.
    assert "DMLC_NODE_HOST" not in commands[1]
    assert "'DMLC_NODE_HOST=10.0.0.2'" in commands[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 scheduler, 0 server and 0 worker lines; want one scheduler, and one or more"),
        (HOSTS + "scheduler 10.0.0.2\n", "has 2 scheduler, 2 server and 2 worker lines"),
        (HOSTS.replace("worker", "server"), "has 1 scheduler, 4 server and 0 worker lines"),
        (
            HOSTS + "boss 10.0.0.3\n",
            "hosts.txt:6: boss is no role; want scheduler, server or worker",
        ),
        (HOSTS + "worker\n", "hosts.txt:6: worker has no address"),
        (HOSTS + "worker 10.0.0.3 x y\n", "hosts.txt:6: x y comes after the address"),
    ],
)
def test_a_wrong_hosts_file_is_refused(hosts: Hosts, text: str, message: str) -> None:
    hosts.file.write_text(text)
    result = hosts.run("hosts.txt")
    assert result.returncode == 2
    assert message in result.stderr
    assert not (hosts.folder / "ssh.log").exists()


def test_a_missing_hosts_file_is_named(hosts: Hosts) -> None:
    result = hosts.run("no.txt")
    assert (result.returncode, result.stderr) == (
        2,
        "run_dist.sh: cannot read the hosts file no.txt\n",
    )


@pytest.mark.parametrize("arguments", [[], ["--print"]])
def test_without_a_hosts_file_it_explains_itself(hosts: Hosts, arguments: List[str]) -> None:
    result = hosts.run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("Train on several hosts")
    assert "DMLC_NODE_HOST" in result.stderr
    assert "set -" not in result.stderr


# -- running -----------------------------------------------------------------------------------


def test_every_role_runs_and_its_lines_carry_its_name(hosts: Hosts) -> None:
    hosts.bslaunch('printf "old\\rhello %s %s\\r\\n" "$DMLC_ROLE" "$*"; echo bye >&2')
    result = hosts.run("hosts.txt", "--lr", "1")
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(result.stdout.splitlines()) == sorted(
        line
        for role, place in (row.split() for row in HOSTS.splitlines())
        for line in (
            f"[{role} {place}] hello {role} "
            + "python3 train_mnist.py --lr 1" * (role == "worker"),
            f"[{role} {place}] bye",
        )
    )
    places = sorted((hosts.folder / "ssh.log").read_text().split())
    assert places == sorted(row.split()[1] for row in HOSTS.splitlines())


def test_the_exit_code_of_a_failing_role_is_passed_on_and_the_others_end(hosts: Hosts) -> None:
    with HeldFifo(hosts.folder) as held:
        hosts.bslaunch(
            'exec 9>>"$HELD"; '
            'if [ "$DMLC_ROLE$DMLC_NODE_HOST" = worker10.0.0.2 ]; then exit 7; fi; sleep 1000'
        )
        result = hosts.run("hosts.txt", HELD=held.path)
        assert result.returncode == 7
        assert "a worker ended with exit code 7; ending the others" in result.stderr
        held.await_gone()


def test_a_worker_is_the_cause_though_a_server_ends_first(hosts: Hosts) -> None:
    os.mkfifo(hosts.folder / "lives")
    hosts.bslaunch(
        "case $DMLC_ROLE in "
        'server) echo x >"$LIVES"; exit 1 ;; worker) read line <"$LIVES"; exit 5 ;; esac'
    )
    hosts.file.write_text("scheduler 10.0.0.1\nserver 10.0.0.1\nworker 10.0.0.1\n")
    result = hosts.run("hosts.txt", LIVES=str(hosts.folder / "lives"), GRACE="30")
    assert result.returncode == 5


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_every_role(hosts: Hosts, number: signal.Signals, code: int) -> None:
    with HeldFifo(hosts.folder) as held:
        hosts.bslaunch('exec 9>"$HELD"; echo x >&9; sleep 1000')
        with hosts.start("hosts.txt", HELD=held.path) as process:
            held.await_started(5)
            process.send_signal(number)
            process.communicate(timeout=LIMIT_S)
        assert process.returncode == code
        held.await_gone()
