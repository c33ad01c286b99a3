"""`bytescheduler`: its commands, what they print, and the exit codes that scripts rely on."""

import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import time
from typing import Dict, Iterator, Tuple

import pytest
from click.testing import Result
from click_runner import runner
from inline_snapshot import snapshot

from bytescheduler import __version__, cli, config
from bytescheduler._metrics.exporter import Exporter
from bytescheduler._process.numbers import A_YEAR_S, Count, Seconds

LIMIT_S = 60
NAMES = [
    *("advise", "bench", "config", "docs", "doctor", "examples", "launch", "timeline", "top"),
]


def invoke(*arguments: str) -> Result:
    return runner().invoke(cli._cli, list(arguments))


def run(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the real command: its exit code is what a script sees."""
    return subprocess.run(
        [sys.executable, "-m", "bytescheduler.cli", *arguments],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        text=True,
        check=False,
    )


# -- the command itself ------------------------------------------------------------------------


def test_help_names_every_command_with_a_whole_sentence() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert sorted(cli._cli.commands) == NAMES
    for name, command in cli._cli.commands.items():
        assert f"  {name:8}  {command.short_help}\n" in result.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version").stdout == f"bytescheduler, version {__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(name: str) -> None:
    for option in ("--help", "-h"):
        result = invoke(name, option)
        assert result.exit_code == 0
        assert f"{name} [OPTIONS]" in result.stdout


@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("bytescheduler", "bytescheduler [OPTIONS] COMMAND"),
        ("bytescheduler.launch", "bslaunch [OPTIONS]"),
        ("bytescheduler.config", "bytescheduler config [OPTIONS]"),
        ("bytescheduler.advise", "bytescheduler advise [OPTIONS]"),
        ("bytescheduler.bench", "bytescheduler bench [OPTIONS]"),
        ("bytescheduler.doctor", "bytescheduler doctor [OPTIONS]"),
        ("bytescheduler.top", "bytescheduler top [OPTIONS]"),
    ],
)
def test_modules_are_commands_that_know_h(module: str, program: str) -> None:
    command = [sys.executable, "-m", module, "-h"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
    assert f"Usage: {program}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["doctr"], "No such command 'doctr'. Did you mean doctor?"),
        (["lunch"], "No such command 'lunch'. Did you mean launch?"),
        (["."], "No such command '.'"),
        (["\udcff"], "No such command '\\udcff'"),
        (["config", "\udcff"], "? is no setting"),
        (["config", "--yaml"], "No such option"),
        (["config", "--markdown", "--json"], "--markdown is the whole reference"),
        (["config", "--markdown", "DMLC_ROLE"], "--markdown is the whole reference"),
        (["config", "BYTESCHEDULER_CREDITS"], "did you mean BYTESCHEDULER_CREDIT?"),
        (["config", "X\x1b[2J"], "X\\x1b[2J is no setting"),
        (["config", "XYZZY"], "XYZZY is no setting; bytescheduler config lists them"),
        (["doctor", "--wait", "3"], "--wait goes with --listen"),
        (["doctor", "--seconds", "1"], "--seconds goes with --peer"),
        (
            ["doctor", "--seconds", "90", "--peer", "a:1"],
            "90: want seconds from 0.1 to 20, such as 5",
        ),
        (["doctor", "--listen", "--seconds", "1"], "--listen answers another host"),
        (["doctor", "--peer", "a:1", "--listen"], "--listen answers another host"),
        (["doctor", "--peer", "10.0.0.2"], "want HOST:PORT, such as 10.0.0.2:9095"),
        (["doctor", "--peer", ":80"], "want HOST:PORT"),
        (["doctor", "--peer", "a:0"], "want HOST:PORT"),
        (["doctor", "--peer", "a:65536"], "want HOST:PORT"),
        (["doctor", "--peer", "a:\u00b2"], "want HOST:PORT"),
        (["doctor", "--peer", "a:\u0663"], "want HOST:PORT"),
        (["doctor", "--peer", "a:" + "9" * 5000], "want HOST:PORT"),
        (["doctor", "--peer", "a:1", "--seconds", "nan"], "nan: want seconds from 0.1 to 20"),
        (["doctor", "--listen", "--wait", "-NaN"], "-NaN: want seconds from 0.1 to 86400"),
        (["doctor", "--listen", "--wait", "inf"], "inf: want seconds from 0.1 to 86400"),
        (["doctor", "--listen", "65536"], "65536: want a whole number from 0 to 65535"),
        (["doctor", "--listen", "nan"], "nan: want a whole number from 0 to 65535"),
        (["launch"], "DMLC_ROLE is not set; set DMLC_ROLE to scheduler, server or worker"),
        (["launch", "--local"], "--local needs a command"),
    ],
)
def test_misuse_ends_with_2_and_says_the_mistake(arguments: "list[str]", text: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


LONG = "9" * 5000
NO_NUMBERS = ["nan", "-inf", "1e308", "-1", LONG, "soon", "", "\x1b[2J"]


@pytest.mark.parametrize("number", NO_NUMBERS)
@pytest.mark.parametrize(
    "line",
    [
        *(f"launch --local {name} NUMBER -- true" for name in ("--timeout", "--grace", "-w", "-s")),
        "launch --local --record x --record-steps NUMBER -- true",
        *("top --interval NUMBER 1", "top -- NUMBER"),
        *(f"bench {name} NUMBER" for name in ("-w", "-s", "--size", "--rounds")),
        *("doctor --peer a:1 --seconds NUMBER", "doctor --peer a:NUMBER"),
        "doctor --listen --wait NUMBER",
        *(f"timeline x --plot x.svg {name} NUMBER" for name in ("--rank", "--step")),
        "advise --rate NUMBER --model vgg16 --compute 1",
        *(f"advise --rate 1gbit x {name} NUMBER" for name in ("-w", "-s", "--simulate")),
        *(f"advise --rate 1gbit x {name} NUMBER" for name in ("--compute", "--latency")),
    ],
)
def test_an_argument_that_is_no_number_is_refused_with_the_wanted_form(
    line: str, number: str
) -> None:
    result = invoke(*(word.replace("NUMBER", number) for word in line.split()))
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    assert ": want " in result.stderr
    assert "\x1b" not in result.stderr
    assert len(result.stderr) < 500


def test_seconds_and_counts_in_their_range_are_taken() -> None:
    assert Seconds(0.1, A_YEAR_S).convert("0.1", None, None) == 0.1
    assert Seconds(0.1, A_YEAR_S).convert("31536000", None, None) == A_YEAR_S
    assert Count(1, 3).convert("3", None, None) == 3


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("b", ["bench"]),
        ("foo b", ["bench"]),
        (". b", ["bench"]),
        ("config --j", ["--json"]),
        *((f"{name} --bogus --he", ["--help"]) for name in NAMES),
    ],
)
def test_a_shell_completes_whatever_was_typed_before(typed: str, offered: "list[str]") -> None:
    words = f"bytescheduler {typed}"
    env = {"_BYTESCHEDULER_COMPLETE": "bash_complete", "COMP_WORDS": words}
    result = run(**env, COMP_CWORD=str(len(words.split()) - 1))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == [f"plain,{word}" for word in offered]


# -- launch ------------------------------------------------------------------------------------


def test_launch_passes_arguments_and_exit_codes_on() -> None:
    job = ("--local", "-q", "--grace", "0.1", "--", "sh", "-c", 'exit "$1"', "sh", "7")
    assert run("launch", *job).returncode == 7


def test_launch_names_a_command_that_is_not_there() -> None:
    result = run("launch", "--local", "--", "nope-x")
    assert (result.returncode, result.stderr) == (127, "bslaunch: command not found: nope-x\n")


# -- config ------------------------------------------------------------------------------------


def test_config_prints_every_setting_with_value_default_unit_and_origin() -> None:
    result = run("config", BYTESCHEDULER_CREDIT="2MiB")
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["name", "value", "default", "unit", "from"]
    assert [row[0] for row in rows[1:]] == [row.name for row in config.settings()]
    assert ["BYTESCHEDULER_CREDIT", "2MiB", "auto", "bytes", "environment"] in rows
    assert ["BYTESCHEDULER_HOLD", "64MiB", "64MiB", "bytes", "default"] in rows
    assert ["DMLC_ROLE", "-", "required", "-", "not", "set"] in rows


def test_config_prints_only_the_named_settings() -> None:
    result = invoke("config", "DMLC_ROLE", "BYTESCHEDULER_HOLD")
    assert [line.split()[0] for line in result.stdout.splitlines()] == [
        *("name", "DMLC_ROLE", "BYTESCHEDULER_HOLD")
    ]


WRONG = {"BYTESCHEDULER_CREDIT": "8Q", "BYTESCHEDULER_HOLDS": "1"}
MESSAGES = {
    "BYTESCHEDULER_CREDIT": "BYTESCHEDULER_CREDIT=8Q: want bytes, such as 8388608 or 8MiB",
    "BYTESCHEDULER_HOLDS": "BYTESCHEDULER_HOLDS is no setting; did you mean BYTESCHEDULER_HOLD?",
}


def test_config_marks_wrong_settings_and_prints_the_errors_of_a_job() -> None:
    result = run("config", **WRONG)
    assert result.returncode == 2
    (row,) = (line for line in result.stdout.splitlines() if "8Q" in line)
    assert row.endswith("environment, wrong")
    assert set(result.stderr.splitlines()) == {f"bytescheduler: {m}" for m in MESSAGES.values()}


def test_a_timeline_that_no_job_could_write_is_wrong_before_one_starts() -> None:
    path = "/nowhere/t.json"
    message = f"BYTESCHEDULER_TIMELINE={path}: its directory: No such file or directory"
    result = run("config", "BYTESCHEDULER_TIMELINE", BYTESCHEDULER_TIMELINE=path)
    assert (result.returncode, result.stderr) == (2, f"bytescheduler: {message}\n")
    result = run("bench", BYTESCHEDULER_TIMELINE=path)
    assert (result.returncode, result.stderr) == (2, f"bytescheduler: {message}\n")
    result = run("launch", "--local", "--", "true", BYTESCHEDULER_TIMELINE=path)
    assert (result.returncode, result.stderr) == (2, f"bslaunch: {message}\n")


def test_config_gives_the_same_as_json() -> None:
    result = run("config", "--json", **WRONG)
    assert result.returncode == 2
    report = json.loads(result.stdout)
    rows: Dict[str, Dict[str, object]] = {row["name"]: row for row in report["settings"]}
    assert list(rows) == [row.name for row in config.settings()]
    assert rows["BYTESCHEDULER_CREDIT"] == {
        "name": "BYTESCHEDULER_CREDIT",
        "value": "8Q",
        "default": "auto",
        "decided_bytes": None,
        "required": False,
        "kind": "bytes",
        "unit": "bytes",
        "scope": "process",
        "for_experts": False,
        "from": "environment",
        "error": MESSAGES["BYTESCHEDULER_CREDIT"],
    }
    assert rows["BYTESCHEDULER_RDMA_SLOTS"]["for_experts"] is True
    role = rows["DMLC_ROLE"]
    assert (role["value"], role["default"], role["required"]) == (None, None, True)
    assert {row["name"]: row["message"] for row in report["errors"]} == MESSAGES


def test_config_of_a_right_setting_ignores_wrong_settings() -> None:
    result = run("config", "--json", "BYTESCHEDULER_HOLD", **WRONG)
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert [row["name"] for row in report["settings"]] == ["BYTESCHEDULER_HOLD"]
    assert report["errors"] == []


def test_config_prints_the_reference() -> None:
    assert invoke("config", "--markdown").stdout == config.markdown()


def test_config_escapes_characters_that_a_terminal_would_obey(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DMLC_NODE_HOST", "a\x1b[2J\nb")
    result = invoke("config", "DMLC_NODE_HOST")
    assert result.stdout.splitlines()[1].split()[1] == "a\\x1b[2J\\nb"


# -- a stdout that takes nothing ---------------------------------------------------------------

LAYER = {"name": "fc", "bytes": 4096, "forward_s": 0.001, "backward_s": 0.001}


@pytest.fixture
def job_and_files(tmp_path: pathlib.Path) -> Iterator[Dict[str, str]]:
    """Show a worker's metrics, and leave a profile and a timeline; by what stands for them."""
    profile, timeline = tmp_path / "profile.json", tmp_path / "timeline.json"
    profile.write_text(json.dumps({"bytescheduler_profile": 1, "layers": [LAYER]}))
    about = {"version": 1, "role": "worker", "rank": 0, "num_workers": 1, "num_servers": 1}
    about.update({"host": "h", "start_ns": 0})
    event = {"name": "bytescheduler", "ph": "M", "pid": 1, "tid": 0, "args": about}
    end = {"name": "bytescheduler_end", "ph": "M", "pid": 1, "tid": 0, "args": {"lost": 0}}
    timeline.write_text(f"[\n{json.dumps(event)},\n{json.dumps(end)}\n]\n")
    showing = Exporter(lambda: [], "worker", 0, "127.0.0.1", 0)
    yield {
        "PORT": str(showing._server.server_port),
        "PROFILE": str(profile),
        "TIMELINE": str(timeline),
    }
    showing.close()


@pytest.mark.parametrize(
    "line",
    [
        *("--help", "config --json", "doctor", "advise PROFILE --rate 1gbit", "timeline TIMELINE"),
        "bench -w 1 --size 4 --rounds 1",
        *("doctor --listen --wait 0.1 --json", "top --once --interval 0.2 PORT"),
    ],
)
def test_a_full_disk_or_none_is_one_line_and_an_exit_code_and_a_lost_reader_another(
    line: str, job_and_files: Dict[str, str], tmp_path: pathlib.Path
) -> None:
    command = [job_and_files.get(word, word) for word in line.split()]
    for framework in ("mxnet", "torch"):  # or the doctor imports them
        (tmp_path / f"{framework}.py").write_text("__version__ = '1.0'")

    def printing_to(stdout: int, how: str = "") -> "Tuple[int, str]":
        python = [sys.executable, "-m", "bytescheduler.cli"]
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {how}', "sh", *python, *command],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            text=True,
        )
        os.close(stdout)
        said = [text for text in done.stderr.splitlines(True) if not text.startswith("listening")]
        return done.returncode, "".join(said)

    code, said = printing_to(os.open("/dev/full", os.O_WRONLY))
    assert said == snapshot(
        "bytescheduler: cannot write to standard output: No space left on device\n"
    )
    assert code == 74
    closed = "bytescheduler: cannot write to standard output: it is not open for writing\n"
    assert printing_to(os.open("/dev/null", os.O_WRONLY), ">&-") == (74, closed)
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert printing_to(write_end) == (128 + signal.SIGPIPE, "")


# -- Ctrl-C ------------------------------------------------------------------------------------


SPAN = {"name": "x", "ph": "X", "cat": "tensor", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
SPAN["args"] = {"key": 1, "round": 1, "bytes": 4}


def written(terminal: int, until: str = "") -> str:
    """Return what is written to a terminal until this comes, or nobody has it open any more."""
    deadline = time.monotonic() + LIMIT_S
    seen = b""
    while not until or until.encode() not in seen:
        readable, _, _ = select.select([terminal], [], [], LIMIT_S)
        assert readable, f"nothing follows {seen!r}"
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError:
            break
        assert time.monotonic() < deadline, f"too much, last {seen[-100:]!r}"
    assert until.encode() in seen, seen
    return seen.decode()


@pytest.mark.parametrize(
    ("line", "at_work", "code", "last_words"),
    [
        (
            "advise --model vgg16 --compute 9 --rate 1gbit -w 64 --simulate 64",
            "so far",
            -signal.SIGINT,
            "",
        ),
        ("bench -w 1 --rounds 1000", "all nodes are there", 1, "Aborted!"),
        ("doctor --listen", "listening on port", 1, "Aborted!"),
        ("timeline LONG -o /dev/stdout", '"cat":"tensor"', 1, "Aborted!"),
        ("top --interval 0.2 PORT", "steps/s", 0, ""),
    ],
)
def test_ctrl_c_ends_a_command_at_its_work_without_a_traceback(
    job_and_files: Dict[str, str],
    tmp_path: pathlib.Path,
    line: str,
    at_work: str,
    code: int,
    last_words: str,
) -> None:
    long = tmp_path / "long.json"  # so that nobody has taken all of it before Ctrl-C
    about, end = pathlib.Path(job_and_files["TIMELINE"]).read_text().splitlines()[1:3]
    long.write_text("\n".join(["[", about, *[f"{json.dumps(SPAN)},"] * 20_000, end, "]", ""]))
    words = {**job_and_files, "LONG": str(long)}
    terminal, theirs = pty.openpty()
    command = [words.get(word, word) for word in line.split()]
    process = subprocess.Popen(
        [sys.executable, "-m", "bytescheduler.cli", *command],
        env={**os.environ, "BYTESCHEDULER_LOG_LEVEL": "info"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        written(terminal, at_work)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = written(terminal)
        assert process.wait(LIMIT_S) == code, said
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert "Traceback" not in said
    assert last_words in said
    assert ("Aborted!" in said) == (last_words != "")
