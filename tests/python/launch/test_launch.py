"""`bslaunch` with real processes: usage, exit codes, output, and that nothing stays behind."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Dict, Iterator, List

import pytest
from held_fifo import HeldFifo
from inline_snapshot import snapshot
from sentences import line_with, masked

from bytescheduler._launch.launcher import node_command

BSLAUNCH = node_command()  # `bslaunch`, whether the package is installed or not
JOB = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9",
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "1",
}
# A worker that takes part: real rendezvous, a barrier, and a good end.
MEMBER = """
import sys
sys.path = [p for p in sys.path if p]
from bytescheduler._native import Worker
worker = Worker.open()
print("there are", worker.num_workers, "and", worker.num_servers)
worker.barrier()
worker.close()
"""
# Stands in for scheduler node and servers: listens nowhere, ends when it is told to.
STAND_IN = """
import os, signal, sys
if os.environ["DMLC_ROLE"] == "scheduler":
    os.write(int(sys.argv[2]), b"4242\\n")
{then}
"""
LIMIT_S = 60


def start(arguments: List[str], cwd: pathlib.Path, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*BSLAUNCH, *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
    )


def bslaunch(*arguments: str, cwd: pathlib.Path, **env: str) -> "subprocess.CompletedProcess[str]":
    with start(list(arguments), cwd, **env) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def with_stand_ins(
    command: List[str],
    cwd: pathlib.Path,
    *,
    then: str = "signal.pause()",
    stderr: int = subprocess.PIPE,
    **job: object,
) -> "subprocess.CompletedProcess[str]":
    """Run a local job whose scheduler node and servers are stand-ins that do `then`."""
    node = [sys.executable, "-c", STAND_IN.format(then=then)]
    given = {"num_workers": 1, "num_servers": 1, "grace": 0.3, "node": node, **job}
    given["command"] = command
    program = (
        "import sys; sys.path = [p for p in sys.path if p]; "
        f"from bytescheduler._launch import local_job as j; sys.exit(j.run(j.Job(**{given!r})))"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=LIMIT_S,
        text=True,
        check=False,
    )


def lines_of(result: "subprocess.CompletedProcess[str]", name: str) -> List[str]:
    """Return what `name` printed."""
    prefix = f"[{name}] "
    found = [line for line in result.stdout.splitlines() if line.startswith(prefix)]
    return [line[len(prefix) :] for line in found]


@pytest.fixture
def holders(tmp_path: pathlib.Path) -> Iterator[HeldFifo]:
    with HeldFifo(tmp_path) as made:
        yield made


# A worker and a child of it, which both hold the FIFO $1; neither heeds SIGTERM if $2 says so.
STUBBORN = 'exec 9>"$1"; trap "$2" TERM; (sleep 1000; :) & echo x >&9; wait; wait; sleep 1000'


# -- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "env", "code", "text"),
    [
        ([], {}, 2, "DMLC_ROLE is not set; set DMLC_ROLE to scheduler, server or worker"),
        ([], {"DMLC_ROLE": "boss"}, 2, "DMLC_ROLE=boss: no such role"),
        ([], {"DMLC_ROLE": '"server"'}, 2, "(quotes, blanks or a carriage return are part of"),
        ([], {"DMLC_ROLE": "server\r"}, 2, "(quotes, blanks or a carriage return are part of"),
        ([], {"DMLC_ROLE": "worker"}, 2, "a worker needs a command"),
        (["nope-x"], {"DMLC_ROLE": "worker"}, 127, "command not found: nope-x"),
        (["true"], {"DMLC_ROLE": "worker"}, 2, "DMLC_PS_ROOT_URI is not set"),
        (
            ["true"],
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "5"},
            2,
            "bslaunch: Slurm started this process (SLURM_PROCID=0 of SLURM_NTASKS=5): say how many "
            "processes are servers with --servers N, or set DMLC_ROLE\n",
        ),
        (["--servers", "2", "true"], {}, 2, "--servers goes with --local, with -H, or under srun"),
        (["-s", "2", "true"], {"DMLC_ROLE": "server"}, 2, "which DMLC_ROLE=server contradicts"),
        (
            ["-s", "4", "true"],
            {"PMI_RANK": "0", "PMI_SIZE": "5"},
            2,
            "too few processes of MPICH for --servers 4: there are 5, want 6 or more",
        ),
        (
            ["-s", "1"],
            {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "9"},
            2,
            "a job needs a command",
        ),
        (["--local", "-H", "a", "true"], {}, 2, "--local and -H contradict each other"),
        (["--local", "--ssh", "ssh", "true"], {}, 2, "--ssh goes with -H"),
        (["-H", "a"], {}, 2, "-H needs a command"),
        (["-H", "a", "--ssh", "'", "true"], {}, 2, "No closing quotation"),
        (["-H", "a", "--ssh", " ", "true"], {}, 2, "want a command, such as ssh"),
        (["-H", "a", "--env", "DMLC_ROLE=x", "true"], {}, 2, "DMLC_ROLE is set by -H"),
        (["-H", "a", "true"], {"DMLC_PS_ROOT_PORT": "x"}, 2, "DMLC_PS_ROOT_PORT=x: want a port"),
        (["-H", "a", "--record", "f", "true"], {}, 2, "--record goes with --local"),
        (
            ["ls", "-l"],
            {"DMLC_ROLE": "server"},
            2,
            "bslaunch: DMLC_ROLE=server runs no command; ignored: ls -l\n",
        ),
        ([], {"DMLC_ROLE": "server"}, 2, "DMLC_NUM_WORKER is not set"),
        ([], {"DMLC_ROLE": "scheduler"}, 2, "DMLC_NUM_WORKER is not set"),
        (
            [],
            {**JOB, "DMLC_ROLE": "server", "DMLC_NODE_HOST": "192.0.2.9"},
            2,
            "DMLC_NODE_HOST=192.0.2.9: no address of this host",
        ),
        (
            [],
            {
                **JOB,
                "DMLC_ROLE": "scheduler",
                "DMLC_PS_ROOT_URI": "nosuch.invalid.",
                "BYTESCHEDULER_TIMEOUT": "200ms",
            },
            2,
            "DMLC_PS_ROOT_URI=nosuch.invalid.: the name cannot be resolved",
        ),
        (["-w", "2"], {"DMLC_ROLE": "server"}, 2, "-w goes with --local"),
        (["-q"], {"DMLC_ROLE": "server"}, 2, "-q goes with --local"),
        (["--local"], {}, 2, "--local needs a command"),
        (["--local", "--", "nope-x"], {}, 127, "command not found: nope-x"),
        (["--local", "-w", "0", "--", "true"], {}, 2, "0: want a whole number from 1 to 1024"),
        (["--local", "-s", "-1", "--", "true"], {}, 2, "-1: want a whole number from 0 to 1024"),
        (
            ["--local", "-s", "0", "true"],
            {"BYTESCHEDULER_REJOIN_TIMEOUT": "30"},
            2,
            "bslaunch: BYTESCHEDULER_REJOIN_TIMEOUT: with DMLC_NUM_SERVER=0 a lost worker takes",
        ),
        (
            ["-H", "a", "-s", "0", "--env", "BYTESCHEDULER_BACKEND=kvstore", "true"],
            {},
            2,
            "bslaunch: BYTESCHEDULER_BACKEND=kvstore: with DMLC_NUM_SERVER=0 workers host servers",
        ),
        (
            [],
            {**JOB, "DMLC_ROLE": "server", "DMLC_NUM_SERVER": "0"},
            2,
            "DMLC_ROLE=server: in a job with DMLC_NUM_SERVER=0 each worker's process hosts a",
        ),
        (
            ["-s", "0", "true"],
            {"PMI_RANK": "0", "PMI_SIZE": "1"},
            2,
            "too few processes of MPICH for --servers 0: there are 1, want 2 or more",
        ),
        (["--local", "-w", "two", "--", "true"], {}, 2, "two: want a whole number"),
        (["--local", "--env", "A", "--", "true"], {}, 2, "'A': want NAME=VALUE"),
        (["--local", "--env", "=1", "--", "true"], {}, 2, "'=1': want NAME=VALUE"),
        (["--local", "--", ""], {}, 127, "command not found: ''\n"),
        (
            ["--local", "-w", "2", "sh -c true"],
            {},
            127,
            "command not found: sh -c true; is the whole command in quotes? Write it without "
            "them: bslaunch ... -- sh -c true\n",
        ),
        (
            ["no such program", "--epochs", "2"],
            {**JOB, "DMLC_ROLE": "worker"},
            127,
            "is the whole command in quotes? Write it without them: bslaunch ... -- no such "
            "program --epochs 2\n",
        ),
        (
            ["--local", "cd x && nope-x train.py"],
            {},
            127,
            "is the whole command in quotes? To let a shell read it: bslaunch ... -- sh -c "
            "'cd x && nope-x train.py'\n",
        ),
        (
            ["--local", "LR=0.1 sh -c true"],
            {},
            127,
            "To let a shell read it: bslaunch ... -- sh -c 'LR=0.1 sh -c true'\n",
        ),
        (
            ["--local", "LR=0.1", "nope-x"],
            {},
            127,
            "to set a variable: bslaunch ... --env LR=0.1 -- ...\n",
        ),
        (["--local", "--", "a\x1b[2J"], {}, 127, "command not found: a\\x1b[2J"),
        (["--local", "--", "\udcff"], {}, 127, "command not found: \\udcff"),
        ([], {"DMLC_ROLE": "\x1b[2J"}, 2, "DMLC_ROLE=\\x1b[2J: no such role"),
        (["\x1b[2J"], {"DMLC_ROLE": "server"}, 2, "runs no command; ignored: \\x1b[2J"),
        (
            ["--local", "--env", "BYTESCHEDULER_CREDIT=\udcff", "true"],
            {},
            2,
            "_CREDIT=?: want bytes",
        ),
        (["--local", "--env", "DMLC_ROLE=x", "--", "true"], {}, 2, "is set by --local"),
        (["--local", "--bogus", "true"], {}, 2, "No such option"),
        (
            ["--local", "true"],
            {"BYTESCHEDULER_CREDITS": "1"},
            2,
            "did you mean BYTESCHEDULER_CREDIT",
        ),
        (["--local", "--env", "BYTESCHEDULER_TIMEOUT=x", "true"], {}, 2, "BYTESCHEDULER_TIMEOUT=x"),
    ],
)
def test_wrong_use_is_refused_in_words(
    tmp_path: pathlib.Path, arguments: List[str], env: Dict[str, str], code: int, text: str
) -> None:
    result = bslaunch(*arguments, cwd=tmp_path, **env)
    assert result.returncode == code
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_script_without_its_program_gets_a_question(tmp_path: pathlib.Path) -> None:
    (tmp_path / "train.py").touch()
    result = bslaunch("--local", "train.py", "--lr", "1", cwd=tmp_path)
    assert result.returncode == 127
    assert result.stderr == snapshot(
        "bslaunch: command not found: train.py; to run a script: bslaunch ... -- python train.py "
        "--lr 1\n"
    )


@pytest.mark.parametrize("value", ["a b", "\udcff"])
def test_any_variable_may_be_set_for_every_process(tmp_path: pathlib.Path, value: str) -> None:
    arguments = ["--local", "-q", "--grace", "0.1", "--env", f"OF_THE_SCRIPT={value}"]
    result = bslaunch(*arguments, "sh", "-c", 'echo "$OF_THE_SCRIPT"', cwd=tmp_path)
    assert result.stdout.startswith(f"{value}\n"), result.stderr


def test_the_role_may_come_from_the_options(tmp_path: pathlib.Path) -> None:
    result = bslaunch("--env", "DMLC_ROLE=worker", "echo", "hello", cwd=tmp_path, **JOB)
    assert (result.returncode, result.stdout) == (0, "hello\n")


@pytest.mark.parametrize("how", [["--local", "--"], []])
def test_a_file_that_may_not_be_executed_gives_126(tmp_path: pathlib.Path, how: List[str]) -> None:
    (tmp_path / "noexec.py").touch(mode=0o644)
    result = bslaunch(*how, "./noexec.py", cwd=tmp_path, DMLC_ROLE="worker", **JOB)
    assert result.returncode == 126
    assert "cannot run ./noexec.py: permission denied" in result.stderr


@pytest.mark.parametrize("given", ["", "auto", "native", "kvstore"])
def test_workers_of_a_local_job_use_its_servers_unless_told_otherwise(
    tmp_path: pathlib.Path, given: str
) -> None:
    result = with_stand_ins(
        ["sh", "-c", "echo $BYTESCHEDULER_BACKEND"],
        tmp_path,
        env={"BYTESCHEDULER_BACKEND": given},
        then="",
    )
    assert lines_of(result, "worker 0") == ["kvstore" if given == "kvstore" else "native"]


def test_a_command_that_is_no_program_gives_126(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "empty"
    script.touch(mode=0o755)
    result = with_stand_ins([str(script)], tmp_path)
    assert result.returncode == 126
    assert f"cannot run {script}: Exec format error" in result.stderr


# -- a whole job -------------------------------------------------------------------------------


def test_a_good_job_ends_with_0(tmp_path: pathlib.Path) -> None:
    result = bslaunch(
        "--local", "-w", "2", "-s", "2", "--", sys.executable, "-c", MEMBER, cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for index in range(2):
        assert "there are 2 and 2" in lines_of(result, f"worker {index}")


def test_the_contents_of_the_working_directory_do_not_matter(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bytescheduler").mkdir()
    (tmp_path / "bytescheduler" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    result = bslaunch("--local", "--", sys.executable, "-c", MEMBER, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_workers_that_never_join_are_reported(tmp_path: pathlib.Path) -> None:
    result = bslaunch("--local", "--grace", "0.3", "true", cwd=tmp_path)
    assert result.returncode == 1
    assert "did every worker use the store?" in result.stderr


@pytest.mark.parametrize(
    ("then", "grace", "code"),
    [
        ("sys.exit(7)", LIMIT_S, 7),
        ("", LIMIT_S, 1),
        ("os.closerange(3, 99); time.sleep(99)", 0.3, 1),
    ],
)
def test_a_scheduler_node_that_does_not_start_ends_the_job(
    tmp_path: pathlib.Path, then: str, grace: float, code: int
) -> None:
    node = [sys.executable, "-c", f"import os, sys, time; print('no luck', flush=True); {then}"]
    result = with_stand_ins(["echo", "never"], tmp_path, node=node, grace=grace)
    assert result.returncode == code
    assert result.stdout == "[scheduler] no luck\n"
    assert "scheduler" in result.stderr
    assert "Traceback" not in result.stderr


def test_every_process_gets_its_place(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What would be the same for all of them, or is left over from another job, is dropped.
    monkeypatch.setenv("DMLC_PORT", "9")
    monkeypatch.setenv("DMLC_RANK", "7")
    monkeypatch.setenv("DMLC_NUM_WORKER", "9")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    result = with_stand_ins(
        ["env"], tmp_path, num_workers=2, num_servers=3, env={"EXTRA": "a=b"}, then=""
    )
    assert result.returncode == 0
    for index in range(2):
        env = dict(line.partition("=")[::2] for line in lines_of(result, f"worker {index}"))
        assert env["DMLC_ROLE"] == "worker"
        assert env["DMLC_PS_ROOT_URI"] == "127.0.0.1"
        assert env["DMLC_NODE_HOST"] == f"127.0.0.{2 - index}"  # see test_ranks.py
        assert env["DMLC_PS_ROOT_PORT"] == "4242"
        assert (env["DMLC_NUM_WORKER"], env["DMLC_NUM_SERVER"]) == ("2", "3")
        assert env["BYTESCHEDULER_BACKEND"] == "native"
        assert env["EXTRA"] == "a=b"
        assert int(env["OMP_NUM_THREADS"]) >= 1
        assert "DMLC_PORT" not in env
        assert "DMLC_RANK" not in env


@pytest.mark.parametrize("place", [{}, {"MASTER_ADDR": "host1", "MASTER_PORT": "29500"}])
def test_workers_have_the_variables_of_torch_distributed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: "dict[str, str]"
) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    result = with_stand_ins(["env"], tmp_path, num_workers=2, num_servers=1, then="")
    ports = set()
    for index in range(2):
        env = dict(line.partition("=")[::2] for line in lines_of(result, f"worker {index}"))
        assert (env["RANK"], env["LOCAL_RANK"]) == (str(index), str(index))
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert env["GROUP_RANK"] == "0"
        assert env["MASTER_ADDR"] == place.get("MASTER_ADDR", "127.0.0.1")
        ports.add(env["MASTER_PORT"])
    assert len(ports) == 1
    assert ports == {place.get("MASTER_PORT", *ports)}


def test_workers_of_a_job_without_servers_are_to_host_them(tmp_path: pathlib.Path) -> None:
    result = with_stand_ins(["env"], tmp_path, num_workers=2, num_servers=0, then="")
    assert result.returncode == 0
    for index in range(2):
        env = dict(line.partition("=")[::2] for line in lines_of(result, f"worker {index}"))
        assert (env["DMLC_NUM_WORKER"], env["DMLC_NUM_SERVER"]) == ("2", "0")
        assert (env["DMLC_ROLE"], env["DMLC_WORKER_ID"]) == ("worker", str(index))
        assert (env["DMLC_PS_ROOT_URI"], env["DMLC_PS_ROOT_PORT"]) == ("127.0.0.1", "4242")
    names = {line.partition("]")[0] for line in result.stdout.splitlines()}
    assert names == {"[worker 0", "[worker 1"}


# -- output ------------------------------------------------------------------------------------


def test_lines_of_workers_never_mix(tmp_path: pathlib.Path) -> None:
    program = (
        "import os\nfor i in range(400): os.write(1 + i % 2, b'%d ' % i + b'x' * 300 + b'\\n')"
    )
    result = with_stand_ins([sys.executable, "-c", program], tmp_path, num_workers=4, then="")
    assert result.returncode == 0
    for index in range(4):
        assert lines_of(result, f"worker {index}") == [f"{i} " + "x" * 300 for i in range(400)]
    assert all(re.match(r"\[worker [0-3]\] \d+ x{300}$", s) for s in result.stdout.splitlines())


def test_a_long_line_without_end_arrives(tmp_path: pathlib.Path) -> None:
    program = "import sys; sys.stdout.write('y' * 200000)"
    result = with_stand_ins([sys.executable, "-c", program], tmp_path, then="")
    assert sum(line.count("y") for line in lines_of(result, "worker 0")) == 200000


def test_a_progress_bar_leaves_its_last_state(tmp_path: pathlib.Path) -> None:
    result = with_stand_ins(["printf", "\\r10%%\\r50%%\\r100%%\\nend"], tmp_path, then="")
    assert lines_of(result, "worker 0") == ["100%", "end"]


def test_quiet_shows_only_the_output_of_the_workers(tmp_path: pathlib.Path) -> None:
    result = with_stand_ins(["echo", "hello"], tmp_path, num_workers=2, quiet=True, then="")
    assert (result.stdout, result.stderr) == ("hello\nhello\n", "")


def test_quiet_silences_real_nodes_too(tmp_path: pathlib.Path) -> None:
    script = "from bytescheduler._native import Worker; Worker.open().close(); print('hello')"
    result = bslaunch("--local", "-q", sys.executable, "-c", script, cwd=tmp_path)
    assert (result.stdout, result.stderr, result.returncode) == ("hello\n", "", 0)


def test_quiet_still_reports_a_failed_worker(tmp_path: pathlib.Path) -> None:
    result = with_stand_ins(["false"], tmp_path, quiet=True)
    assert "worker 0 ended with exit code 1" in result.stderr


@pytest.mark.parametrize(
    ("where", "why"),
    [(">&-", "it is not open for writing"), (">/dev/full", "No space left on device")],
)
def test_a_job_runs_without_a_stdout_and_says_so(
    tmp_path: pathlib.Path, where: str, why: str
) -> None:
    script = 'echo hello; touch "$0.ran"; exit 7'
    command = ["--local", "-q", "--grace", "0.1", "sh", "-c", script, str(tmp_path / "x")]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", *BSLAUNCH, *command],
        capture_output=True,
        timeout=LIMIT_S,
        text=True,
    )
    assert done.returncode == 7
    assert (tmp_path / "x.ran").exists()
    lost = f"bslaunch: cannot write to standard output: {why}; lines of the job's output are lost\n"
    assert done.stderr.count(lost) == 1
    assert "Traceback" not in done.stderr


def test_a_lost_reader_ends_the_job(tmp_path: pathlib.Path) -> None:
    process = start(["--local", "sh", "-c", "while echo y; do :; done"], tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=LIMIT_S) == 128 + signal.SIGPIPE
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


# -- failure and end ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ("exit 3", 3, "worker 0 ended with exit code 3; ending the job"),
        ("kill -9 $$", 137, "worker 0 was ended by SIGKILL; ending the job"),
        ("kill -SEGV $$", 139, "worker 0 was ended by SIGSEGV; ending the job"),
    ],
)
def test_the_first_failure_decides_the_code(
    tmp_path: pathlib.Path, script: str, code: int, text: str
) -> None:
    result = bslaunch("--local", "--grace", "0.3", "sh", "-c", script, cwd=tmp_path)
    assert result.returncode == code
    assert text in result.stderr


def test_a_failed_worker_ends_the_other_workers(tmp_path: pathlib.Path, holders: HeldFifo) -> None:
    # The first to make the directory fails once the other is there; the other would never end.
    script = (
        'exec 9>"$1"; if mkdir first; then mkfifo go; read line <go; exit 9; fi; '
        "while ! echo x 2>/dev/null >go; do :; done; (sleep 1000; :) & sleep 1000"
    )
    result = bslaunch(
        *["--local", "-w", "2", "--grace", "0.3", "sh", "-c", script, "sh", holders.path],
        cwd=tmp_path,
    )
    assert result.returncode == 9
    holders.await_gone()


def test_a_worker_is_the_cause_though_a_server_ends_first(tmp_path: pathlib.Path) -> None:
    # The worker ends when it reads what bslaunch says about the server, so certainly after it.
    os.mkfifo(tmp_path / "said")
    said = os.open(tmp_path / "said", os.O_RDWR)
    result = with_stand_ins(
        ["sh", "-c", "read line <said; exit 3"],
        tmp_path,
        then="sys.exit(os.environ['DMLC_ROLE'] == 'server')",
        stderr=said,
        grace=20.0,
    )
    assert result.returncode == 3
    os.set_blocking(said, False)
    last = os.read(said, 1 << 16).decode()
    os.close(said)
    assert last == snapshot("bslaunch: worker 0 ended with exit code 3\n")


# A worker whose rank 2 raises; the others see the job fail, and may end before it.
ONE_RAISES = """
import sys, time
sys.path = [p for p in sys.path if p]
from bytescheduler._native import Worker
worker = Worker.open()
print("rank", worker.rank)
worker.barrier()
if worker.rank == 2:
    worker.fail("a mistake of its own")
    time.sleep(1)
    sys.exit(5)
worker.barrier()
"""


def test_the_worker_that_raised_is_blamed_though_it_ends_last(
    tmp_path: pathlib.Path,
) -> None:
    command = [sys.executable, "-c", ONE_RAISES]
    result = bslaunch("--local", "-w", "3", "-s", "2", *command, cwd=tmp_path)
    assert result.returncode == 5
    told = [line for line in result.stderr.splitlines() if "ended with" in line]
    assert told == snapshot(
        ["bslaunch: worker 2 ended with exit code 5: a mistake of its own; ending the job"]
    )
    for index in range(3):
        assert f"rank {index}" in lines_of(result, f"worker {index}")
    for node in ("scheduler", "server 0", "server 1"):
        assert any("worker 2 gave up: a mistake" in line for line in lines_of(result, node))


def test_the_traceback_of_a_slow_worker_that_gave_up_comes_last(tmp_path: pathlib.Path) -> None:
    # Longer than a traceback is held in a job that runs.
    slow = (
        "echo 'Traceback (most recent call last):'; echo 'ValueError: a mistake'; sleep 4; exit 5"
    )
    verdict = "worker 0 gave up: ValueError: a mistake"
    result = with_stand_ins(
        ["sh", "-c", slow],
        tmp_path,
        then=f"len(sys.argv) > 2 and os.write(int(sys.argv[2]), b'{verdict}\\n'); signal.pause()",
        stderr=subprocess.STDOUT,
    )
    assert result.returncode == 5
    assert result.stdout == snapshot(
        """\
bslaunch: worker 0 ended with exit code 5: ValueError: a mistake; ending the job
[worker 0] Traceback (most recent call last):
[worker 0] ValueError: a mistake
"""
    )


def test_a_process_that_a_worker_left_in_the_background_is_ended(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    script = 'exec 9>"$1"; (trap "" TERM; sleep 1000; :) & exit 0'
    result = with_stand_ins(["sh", "-c", script, "sh", holders.path], tmp_path, then="")
    assert result.returncode == 0
    holders.await_gone()


# A worker that saves for $2 seconds once it hears a signal, and ends with $3.
SAVES = """
import os, signal, sys, time
heard = []
for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGHUP):
    signal.signal(n, lambda n, _: heard.append(n))
f = open(sys.argv[1], "w"); f.write("x\\n"); f.flush()
try:
    while not heard or set(heard) <= {signal.SIGUSR1, signal.SIGUSR2}:
        known = len(heard)
        while len(heard) == known:
            time.sleep(0.02)  # a signal between a look and a pause would be slept over
        print("heard", *heard, flush=True); f.write("x\\n"); f.flush()
except KeyboardInterrupt:
    pass
time.sleep(float(sys.argv[2]))
print("saved", flush=True)
sys.exit(int(sys.argv[3]))
"""


def saving(holders: HeldFifo, seconds: float, code: int) -> List[str]:
    return [sys.executable, "-c", SAVES, holders.path, str(seconds), str(code)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM])
def test_workers_save_after_a_signal_and_their_code_is_the_jobs(
    tmp_path: pathlib.Path, holders: HeldFifo, number: signal.Signals
) -> None:
    command = ["--local", "-w", "2", *saving(holders, 0.5, 7)]
    with start(command, tmp_path) as process:
        holders.await_started(2)
        process.send_signal(number)
        process.send_signal(number)  # as timeout(1) does, to the process and to its group
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7
    assert out.count("saved\n") == 2
    assert masked(line_with("25 s", err), SIGNAL=number.name) == snapshot(
        "bslaunch: SIGNAL: the workers have 25 s to save and end; a second signal ends them now"
    )
    holders.await_gone()


@pytest.mark.parametrize("wrapper", ["{}; exit $?", "trap 'echo trapped' TERM USR1; {}; exit $?"])
def test_a_script_between_keeps_no_signal_from_its_program(
    tmp_path: pathlib.Path, holders: HeldFifo, wrapper: str
) -> None:
    script = wrapper.format('"$@"')
    command = ["--local", "sh", "-c", script, "sh", *saving(holders, 0.2, 7)]
    with start(command, tmp_path) as process:
        holders.await_started(1)
        process.send_signal(signal.SIGUSR1)
        holders.await_started(1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7, out + err
    assert "[worker 0] saved\n" in out
    holders.await_gone()


def test_usr1_and_usr2_reach_the_workers_and_end_nothing(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    with start(["--local", "-w", "2", *saving(holders, 0, 0)], tmp_path) as process:
        holders.await_started(2)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            process.send_signal(number)
            holders.await_started(2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, out + err
    for index in range(2):
        assert f"[worker {index}] heard 10 12\n" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM])
def test_a_signal_ends_workers_without_a_handler_and_their_children(
    tmp_path: pathlib.Path, holders: HeldFifo, number: signal.Signals
) -> None:
    # One in the group of the worker, and one in a group of its own.
    script = 'exec 9>"$1"; (sleep 1000; :) & set -m; (sleep 1000; :) & echo x >&9; wait'
    with start(["--local", "sh", "-c", script, "sh", holders.path], tmp_path) as process:
        holders.await_started(1)
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    holders.await_gone()


@pytest.mark.parametrize("again", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_cuts_the_time_to_save_short(
    tmp_path: pathlib.Path, holders: HeldFifo, again: signal.Signals
) -> None:
    with start(["--local", *saving(holders, 1000, 0)], tmp_path) as process:
        holders.await_started(1)
        process.send_signal(signal.SIGTERM)
        holders.await_started(1)  # it has heard
        time.sleep(0.6)  # sooner it would be the same signal
        process.send_signal(again)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert f"stopped by {again.name}" in err
    holders.await_gone()


def test_workers_that_do_not_end_in_time_are_killed_with_their_children(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    command = ["--local", "--grace", "0.5", "sh", "-c", STUBBORN, "sh", holders.path, ""]
    with start(command, tmp_path) as process:
        holders.await_started(1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert "0.5 s are over; ending worker 0" in err
    holders.await_gone()


def test_the_grace_may_come_from_the_environment(tmp_path: pathlib.Path, holders: HeldFifo) -> None:
    env = {"BYTESCHEDULER_GRACE": "300ms"}
    with start(["--local", *saving(holders, 1000, 0)], tmp_path, **env) as process:
        holders.await_started(1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert "the workers have 0.3 s to save" in err


def test_a_worker_may_save_after_another_has_failed(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    # The first to make the directory is ended by the signal, the other saves.
    script = 'if mkdir first; then exec 9>"$1"; echo x >&9; exec sleep 1000; fi; shift; exec "$@"'
    saves = saving(holders, 0.5, 0)
    command = ["--local", "-w", "2", "sh", "-c", script, "sh", holders.path, *saves]
    with start(command, tmp_path) as process:
        holders.await_started(2)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert "saved\n" in out


def test_a_signal_that_was_ignored_from_the_start_stays_so(
    tmp_path: pathlib.Path, holders: HeldFifo
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        job = start(["--local", *saving(holders, 0, 7)], tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    with job as process:
        holders.await_started(1)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7
    assert "SIGHUP" not in err
    holders.await_gone()


def test_even_sigkill_ends_the_workers(tmp_path: pathlib.Path, holders: HeldFifo) -> None:
    script = 'exec 9>"$1"; echo x >&9; exec sleep 1000'
    with start(["--local", "sh", "-c", script, "sh", holders.path], tmp_path) as process:
        holders.await_started(1)
        process.kill()
        process.communicate(timeout=LIMIT_S)
    holders.await_gone()


def test_a_time_out_gives_124(tmp_path: pathlib.Path, holders: HeldFifo) -> None:
    result = bslaunch(
        *["--local", "--timeout", "1", "sh", "-c", STUBBORN, "sh", holders.path, "exit 0"],
        cwd=tmp_path,
    )
    assert result.returncode == 124
    assert "not finished after 1 s" in result.stderr
    holders.await_gone()
