"""`bslaunch -H` with a stand-in for ssh: places, quoting, causes, signals, and good ends."""

import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Callable, Iterator, Sequence

import pytest
from held_fifo import HeldFifo
from inline_snapshot import snapshot
from sentences import line_with
from stand_in_ssh import make_ssh

from bytescheduler._launch.launcher import node_command
from bytescheduler._launch.ssh_job import places_of
from bytescheduler._started.host_names import read_hosts

BSLAUNCH = node_command()
LIMIT_S = 60
MEMBER = """
import os, sys
sys.path = [p for p in sys.path if p]
from bytescheduler._session.direct import open_worker
worker = open_worker()
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT"
print("torch", *[os.environ.get(name) for name in names.split()])
print("rank", worker.rank, [os.environ.get("GIVEN")], os.getcwd(), sys.argv[1:])
worker.barrier()
worker.close()
"""
ODD = "a b 'c' \"d\" $HOME `e` \\f *\n\tg;#! \u00e9\udcff"
# Holds the FIFO $1 in a child too; $2 says what it does about SIGTERM.
STUBBORN = 'exec 9>"$1"; trap "$2" TERM; (sleep 1000; :) & echo x >&9; wait; wait; sleep 1000'
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Start:
    ssh = make_ssh(tmp_path)

    def started(
        *arguments: str, program: Sequence[str] = BSLAUNCH, **env: str
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*program, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(start: Start) -> Run:
    def finished(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
        with start(*arguments, **options) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return finished


@pytest.fixture
def holders(tmp_path: pathlib.Path) -> Iterator[HeldFifo]:
    with HeldFifo(tmp_path) as made:
        yield made


def test_workers_go_around_the_slots_and_servers_around_the_hosts() -> None:
    workers, servers = places_of(read_hosts("a,b:2"), 4, 3)
    assert [host.login for host in workers] == ["a", "b", "b", "a"]
    assert [host.login for host in servers] == ["a", "b", "a"]


def test_without_servers_a_host_has_workers_alone() -> None:
    workers, servers = places_of(read_hosts("a,b"), 2, 0)
    assert [host.login for host in workers] == ["a", "b"]
    assert servers == []


def test_a_job_runs_on_its_hosts_with_every_character_kept(
    run: Run, tmp_path: pathlib.Path
) -> None:
    result = run(
        *("-H", "127.0.0.1,127.0.0.2:2", "-s", "2", "--env", f"GIVEN={ODD}", "--"),
        *(sys.executable, "-c", MEMBER, ODD),
        DMLC_NODE_HOST="192.0.2.1",
        SLURM_PROCID="0",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in range(3):
        text = f"[worker {rank}] rank {rank} {[ODD]!r} {tmp_path} {[ODD]!r}"
        assert text in result.stdout.splitlines()
    torch = sorted(re.findall(r"torch (\d 3 \d \d \d) 127.0.0.1 (\d+)", result.stdout))
    assert [row[0] for row in torch] == ["0 3 0 1 0", "1 3 0 2 1", "2 3 1 2 1"]
    assert len({row[1] for row in torch}) == 1
    assert int(torch[0][1]) > 0
    hosts = (tmp_path / "ssh.log").read_text().split()
    # One look at each, then the scheduler node, two servers, three workers.
    assert sorted(hosts[:2]) == ["127.0.0.1", "127.0.0.2"]
    assert sorted(hosts[2:]) == ["127.0.0.1"] * 3 + ["127.0.0.2"] * 3


def test_workers_on_hosts_may_host_the_servers(run: Run, tmp_path: pathlib.Path) -> None:
    result = run(
        *("-H", "127.0.0.1,127.0.0.2", "-s", "0", "--env", "MASTER_PORT=29500", "--"),
        *(sys.executable, "-c", MEMBER.replace("sys.argv[1:]", "worker.num_servers")),
        MASTER_ADDR="127.0.0.2",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("127.0.0.2 29500") == 2, "a place that is given stays"
    for rank in range(2):
        assert f"[worker {rank}] rank {rank} [None] {tmp_path} 2" in result.stdout.splitlines()
    hosts = (tmp_path / "ssh.log").read_text().split()
    # One look at each, then the scheduler node and a worker, and the other worker.
    assert sorted(hosts[2:]) == ["127.0.0.1"] * 2 + ["127.0.0.2"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ("-H", "127.0.0.1,127.0.0.7", "true"),
            255,
            "ssh cannot reach 127.0.0.7: ssh: connect to host 127.0.0.7 port 22: Connection",
        ),
        (
            ("-H", "127.0.0.7,127.0.0.1,127.0.0.9", "true"),
            255,
            "127.0.0.7 port 22: Connection refused (1 more host not ready)",
        ),
        (("-H", "127.0.0.1,127.0.0.2", "nope-x"), 127, "127.0.0.1: command not found: nope-x"),
        (("-H", "127.0.0.1", "/etc/passwd"), 126, "127.0.0.1: cannot run /etc/passwd: permission"),
        (("-H", "127.0.0.9", "true"), 127, "127.0.0.9: cannot run bytescheduler by "),
        (("-H", "127.0.0.1", "--ssh", "no-ssh", "true"), 127, "command not found: no-ssh"),
        (("-H", "a b", "true"), 2, "-H a b: 'a b' is no host; want HOST, USER@HOST or HOST:SLOTS"),
        (("-H", "h:0", "true"), 2, "-H h:0: 'h:0': want 1 to 1024 slots behind the colon"),
        (("-H", "localhost,h", "true"), 2, "h cannot reach the scheduler node at localhost"),
    ],
)
def test_a_job_that_cannot_run_is_told_in_one_sentence_before_the_start(
    run: Run, arguments: Sequence[str], code: int, text: str
) -> None:
    result = run(*arguments)
    assert result.returncode == code
    assert result.stderr.count("\n") == 1
    assert text in result.stderr
    assert result.stdout == ""


def test_the_first_failure_ends_all_with_its_code(run: Run, holders: HeldFifo) -> None:
    script = f'[ "$DMLC_WORKER_ID" = 1 ] && exit 7; {STUBBORN}'
    result = run(
        *("-H", "127.0.0.1,127.0.0.2", "--grace", "0.3", "--"),
        *("sh", "-c", script, "sh", holders.path, ":"),
    )
    holders.await_gone()
    assert result.returncode == 7
    assert line_with("exit code 7", result.stderr) == snapshot(
        "bslaunch: worker 1 ended with exit code 7 on 127.0.0.2; ending the job"
    )


def test_a_connection_that_ends_is_a_failure(run: Run) -> None:
    result = run("-H", "127.0.0.1,127.0.0.8", "-s", "1", "--grace", "0.3", "--", "sleep", "1000")
    assert result.returncode == 255
    assert "worker 1: the connection to 127.0.0.8 ended (exit code 255)" in result.stderr


def test_a_signal_ends_all(start: Start, holders: HeldFifo) -> None:
    command = ("sh", "-c", STUBBORN, "sh", holders.path, "")
    with start("-H", "127.0.0.1:2", "-s", "1", "--grace", "0.5", "--", *command) as process:
        holders.await_started(2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    holders.await_gone()
    assert process.returncode == 130


def test_a_host_that_never_responds_leaves_no_process_here(start: Start, holders: HeldFifo) -> None:
    with start("-H", "127.0.0.1,127.0.0.6", "true") as process:
        holders.await_started(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    holders.await_gone()
    assert process.returncode == 130
    assert said == "bslaunch: stopped by SIGINT\n"


def test_a_login_that_prints_something_is_no_response_of_the_agent(run: Run) -> None:
    result = run("-H", "127.0.0.5", "--", sys.executable, "-c", MEMBER)
    assert result.returncode == 0, result.stdout + result.stderr
    result = run("-H", "127.0.0.5", "--", "nope-x")
    assert result.stderr == "bslaunch: 127.0.0.5: command not found: nope-x\n"


def test_nothing_outlives_a_bslaunch_that_is_killed(start: Start, holders: HeldFifo) -> None:
    command = ("sh", "-c", STUBBORN, "sh", holders.path, "")
    with start("-H", "127.0.0.1:2", "-s", "1", "--grace", "0.5", "--", *command) as process:
        holders.await_started(2)
        process.kill()
        process.communicate(timeout=LIMIT_S)
    holders.await_gone()


def test_the_example_s_script_is_a_job_on_hosts(run: Run, tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path(__file__).resolve().parents[3] / "example" / "image-classification"
    for name, body in (
        ("bslaunch", 'exec "$OWN" -c "$PROGRAM" "$@"'),
        ("python3", f'echo "in $(pwd):" "$@"; exec {sys.executable} -c "$MEMBER"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    own, _, program = node_command()
    result = run(
        *("127.0.0.1", "2", "1", "--network", "mlp"),
        program=[str(folder / "run_dist.sh")],
        OWN=own,
        PROGRAM=program,
        MEMBER=MEMBER,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"[worker 1] in {folder}: train_mnist.py --network mlp" in result.stdout
    result = run("127.0.0.1", program=[str(folder / "run_dist.sh")])
    assert result.returncode == 2
    assert "want HOST[:SLOTS],... WORKERS SERVERS" in result.stderr
