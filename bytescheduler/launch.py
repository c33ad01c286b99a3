"""`bslaunch`: start a role of a job, or a whole job, on this host or over ssh."""

import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import sys
from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

import click

from bytescheduler import __version__
from bytescheduler._launch import agent, local_job, role_worker, ssh_job
from bytescheduler._launch.launcher import FIXED, node_command
from bytescheduler._process import stdout
from bytescheduler._process.numbers import A_YEAR_S, Count, Seconds, shortened
from bytescheduler._process.say import plain, say
from bytescheduler._settings import Settings
from bytescheduler._started.environments import LaunchError, place_in_job
from bytescheduler._started.host_names import HostSlots, read_hosts
from bytescheduler.config import as_text, check_settings, settings
from bytescheduler.errors import ConfigError

__all__ = ["cli", "main"]

_NEEDS_SHELL = re.compile(r"[&|;<>$`*]|^cd ")
_ROLES = ("scheduler", "server", "worker")
_USAGE_ROLE = (
    "set DMLC_ROLE to scheduler, server or worker to start one role of a job, "
    "or pass --local to start a whole job on this host, or -H HOSTS to start it over ssh"
)
_LAUNCHERS = "srun, mpirun, torchrun or an indexed job of Kubernetes"
_LOOPBACK = re.compile(r"localhost(\..*)?|127\..*|::1")


def _split_env(pairs: Sequence[str]) -> Dict[str, str]:
    result = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals or "\0" in pair:
            raise click.BadParameter(f"{pair!r}: want NAME=VALUE", param_hint="'--env'")
        result[name] = value
    return result


def _require_command(command: Sequence[str], option: str, path: Optional[str]) -> None:
    if not command:
        raise click.UsageError(f"{option} needs a command: bslaunch ... -- python train.py")
    if shutil.which(command[0], path=path) is not None:
        return
    program = plain(command[0]) or "''"
    if shutil.which(command[0], mode=os.F_OK, path=path) is not None:
        say(f"bslaunch: cannot run {program}: permission denied; is it executable (chmod +x)?")
        sys.exit(126)
    say(f"bslaunch: command not found: {program}{_question(command, path)}")
    sys.exit(127)


def _question(command: Sequence[str], path: Optional[str]) -> str:
    """Return a guess for a command that was not found, as words to append."""
    words = command[0].split()
    first, equals, _ = words[0].partition("=") if words else ("", "", "")
    sets = bool(equals) and first.isidentifier()  # which takes a shell
    if (
        len(words) > 1
        and not sets
        and (shutil.which(words[0], path=path) or not _NEEDS_SHELL.search(command[0]))
    ):
        return (
            "; is the whole command in quotes? Write it without them: "
            f"bslaunch ... -- {plain(' '.join((*words, *command[1:])))}"
        )
    if len(words) > 1:
        return (
            "; is the whole command in quotes? To let a shell read it: "
            f"bslaunch ... -- sh -c {plain(shlex.quote(command[0]))}"
        )
    name, equals, _ = command[0].partition("=")
    if equals and name.isidentifier():
        return f"; to set a variable: bslaunch ... --env {plain(command[0])} -- ..."
    if os.path.isfile(command[0]) and command[0].endswith(".py"):
        return f"; to run a script: bslaunch ... -- python {plain(' '.join(command))}"
    return ""


def _require_settings(overrides: Mapping[str, str]) -> None:
    """Refuse wrong settings once, before anything starts; other variables are no matter of ours."""
    setting_names = {row.name for row in settings()}
    judged = {
        name: value
        for name, value in as_text(overrides).items()
        if name in setting_names or name.startswith("BYTESCHEDULER_")
    }
    try:
        check_settings(judged)
    except ConfigError as error:
        say(f"bslaunch: {plain(str(error))}")
        sys.exit(2)


def _refuse(reason: str) -> NoReturn:
    say(f"bslaunch: {plain(reason)}")
    sys.exit(2)


def _take_place(command: Sequence[str], workers: Optional[int], servers: Optional[int]) -> None:
    """Take the role and the rank that a launcher's variables give this process, if they do.

    DMLC_ROLE is the word of a person, so it stands.
    """
    option = "-w" if servers is None else "--servers"
    belongs = f"{option} goes with --local, with -H, or under {_LAUNCHERS}"
    is_given = servers is not None or workers is not None
    role = os.environ.get("DMLC_ROLE", "")
    if role and not is_given:
        return
    if role:
        _refuse(f"{belongs}, which DMLC_ROLE={role} contradicts: leave one of both out")
    try:
        place = place_in_job(os.environ, servers, workers)
    except LaunchError as error:
        _refuse(str(error))
    if place:
        _require_command(command, "a job", None)
        os.environ.update(place)
    elif is_given:
        _refuse(
            f"{belongs}, and none of these has started this process; add --local to run the whole "
            "job on this host"
        )


def _run_role(command: Sequence[str], port_fd: Optional[int]) -> int:
    """Run the role that the environment names, to its end."""
    role = os.environ.get("DMLC_ROLE", "")
    if role not in _ROLES:
        fault = f"DMLC_ROLE={plain(role)}: no such role" if role else "DMLC_ROLE is not set"
        if role.strip("\"' \t\r\n") in _ROLES:
            fault += " (quotes, blanks or a carriage return are part of the value)"
        raise click.UsageError(f"{fault}; {_USAGE_ROLE}")
    if role == "worker":
        _require_command(command, "a worker", None)
        _require_settings({})
        env = dict(os.environ)
        local_job.prefer_native(env)
        settings = Settings.read()
        role_worker.show_route(env, settings)
        rendezvous = role_worker.Rendezvous.from_settings(settings)
        return role_worker.run(command, env, rendezvous, settings.grace_s)
    if command and Settings.read().is_talkative:
        say(f"bslaunch: DMLC_ROLE={role} runs no command; ignored: {shortened(' '.join(command))}")
    from bytescheduler import server  # not for workers: they choose their own imports

    def report(line: object) -> None:
        if port_fd is not None:
            with contextlib.suppress(OSError):  # its reader has ended
                os.write(port_fd, f"{line}\n".encode(errors="replace"))

    return server.run(role, on_listening=report, on_failure=lambda reason: report(plain(reason)))


def _run_local(job: local_job.Job) -> int:
    """Check all that can be checked, then run the whole job here."""
    for name in job.env:
        if name in FIXED:
            raise click.BadParameter(f"{name} is set by --local", param_hint="'--env'")
    _require_command(job.command, "--local", job.env.get("PATH"))
    _require_settings(
        {
            **job.env,
            "DMLC_ROLE": "scheduler",
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": "0",
            "DMLC_NUM_WORKER": str(job.num_workers),
            "DMLC_NUM_SERVER": str(job.num_servers),
        }
    )
    return local_job.run(job)


def _read_hosts(text: str) -> Sequence[HostSlots]:
    try:
        hosts = read_hosts(text)
    except ValueError as error:
        _refuse(f"-H {text}: {error}")
    root = os.environ.get("DMLC_PS_ROOT_URI", "") or hosts[0].address
    far = next((host for host in hosts if not _LOOPBACK.fullmatch(host.address)), None)
    if far is not None and _LOOPBACK.fullmatch(root):
        _refuse(
            f"-H {text}: {far.address} cannot reach the scheduler node at {root}; give the first "
            "host the name by which the others reach it, or set DMLC_PS_ROOT_URI to that"
        )
    return hosts


def _root_port() -> int:
    text = os.environ.get("DMLC_PS_ROOT_PORT", "")
    if text and not (text.isascii() and text.isdigit() and int(text[:6]) < 1 << 16):
        _refuse(f"DMLC_PS_ROOT_PORT={text}: want a port from 0 to 65535")
    return int(text or "0")


def _run_on_hosts(job: local_job.Job, hosts: Sequence[HostSlots], ssh: str) -> int:
    """Check all that can be checked here, then run the whole job over ssh."""
    for name in job.env:
        if name in FIXED:
            raise click.BadParameter(f"{name} is set by -H", param_hint="'--env'")
    if not job.command:
        raise click.UsageError("-H needs a command: bslaunch ... -- python train.py")
    try:
        words = shlex.split(ssh)
    except ValueError as error:
        raise click.BadParameter(f"{ssh!r}: {error}", param_hint="'--ssh'") from None
    if not words:
        raise click.BadParameter("want a command, such as ssh", param_hint="'--ssh'")
    _require_command(words, "--ssh", None)
    root, port = os.environ.get("DMLC_PS_ROOT_URI", "") or hosts[0].address, _root_port()
    _require_settings(
        {
            **job.env,
            "DMLC_ROLE": "scheduler",
            "DMLC_PS_ROOT_URI": root,
            "DMLC_PS_ROOT_PORT": str(port),
            "DMLC_NUM_WORKER": str(job.num_workers),
            "DMLC_NUM_SERVER": str(job.num_servers),
        }
    )
    fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    return ssh_job.run(ssh_job.SshJob(**fields, hosts=hosts, ssh=words, root=root, port=port))


def _require_place(path: str) -> None:
    """Refuse a path where no profile could be written when the job is over."""
    shown = plain(path) or "''"
    is_no_file = os.path.exists(path) and not os.path.isfile(path)
    is_option = path.startswith("-")  # such as the -- behind a forgotten name
    if is_no_file or is_option or path.endswith("/") or not path:
        raise click.UsageError(f"--record {shown}: want the name of a file, new or to be replaced")
    try:
        folder = os.path.dirname(os.path.realpath(path))
    except OSError as error:  # the working directory is gone
        raise click.UsageError(f"--record {shown}: {error.strerror}") from None
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise click.UsageError(
            f"--record {shown}: {plain(folder)} is no folder that can be written to"
        )


def _record(job: local_job.Job, path: str, steps: Optional[int]) -> int:
    """Run a job here, with a profile of its worker 0."""
    from bytescheduler._advise import recording

    if recording.SETTING in {**os.environ, **job.env}:
        raise click.UsageError(f"--record needs {recording.SETTING} for itself; unset it")
    _require_place(path)
    if steps is not None and steps < recording.LEAST_STEPS:
        raise click.UsageError(
            f"--record-steps {steps}: want at least {recording.LEAST_STEPS}, of which the first "
            "and the last tell nothing"
        )
    return recording.record(job, path, _run_local, steps)


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Start one role of a job, or a whole job on this host.",
)
@click.option("--local", is_flag=True, help="Start the whole job on this host.")
@click.option(
    "-H",
    "--hosts",
    metavar="HOST[:SLOTS],...",
    help="Start the whole job on these hosts, over ssh.",
)
@click.option(
    "-w",
    "--workers",
    type=Count(1, 1024),
    help="Workers (default 1; with -H one for each slot; under a launcher the rest).",
)
@click.option(
    "-s",
    "--servers",
    type=Count(0, 1024),
    help="Servers (default 1; with -H one on each host); 0: each worker hosts one.",
)
@click.option("--ssh", metavar="COMMAND", help="How hosts are reached (with -H; default ssh).")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="Set a variable for every process."
)
@click.option(
    "--timeout",
    type=Seconds(0.1, A_YEAR_S),
    metavar="S",
    help="End the job after this many seconds, with exit code 124 (with --local or -H).",
)
@click.option(
    "--grace",
    type=Seconds(0, A_YEAR_S),
    metavar="S",
    help="Time for workers to save and end after a signal or a failure (default 25).",
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="No prefixes, and only warnings in the log (with --local or -H).",
)
@click.option(
    "--record",
    type=click.Path(),
    metavar="FILE",
    help="Write a profile of the model for bytescheduler advise (with --local).",
)
@click.option(
    "--record-steps",
    type=Count(1, 10**9),
    metavar="N",
    help="End the job well after N steps of training (with --record).",
)
@click.option("--port-fd", type=int, hidden=True)
@click.option("--agent", "is_agent", is_flag=True, hidden=True)
@click.version_option(__version__)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def cli(
    local: bool,
    hosts: Optional[str],
    workers: Optional[int],
    servers: Optional[int],
    ssh: Optional[str],
    env: Tuple[str, ...],
    timeout: Optional[float],
    grace: Optional[float],
    quiet: bool,
    record: Optional[str],
    record_steps: Optional[int],
    port_fd: Optional[int],
    is_agent: bool,
    command: Tuple[str, ...],
) -> None:
    """Start one role of a bytescheduler job, or a whole job on this host or over ssh.

    \b
    One role, from the environment with DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT,
    DMLC_NUM_WORKER and DMLC_NUM_SERVER (bytescheduler config names all):
      DMLC_ROLE=scheduler bslaunch
      DMLC_ROLE=server    bslaunch
      DMLC_ROLE=worker    bslaunch python train.py ...

    \b
    Everything on this host:
      bslaunch --local -w 2 -s 1 -- python train.py ...

    \b
    The same without servers of their own, which the workers host:
      bslaunch --local -w 2 -s 0 -- python train.py ...

    \b
    Everything on several hosts, over ssh:
      bslaunch -H host1,host2:2 -w 4 -s 2 -- python train.py ...

    \b
    Every process of srun, mpirun, torchrun or an indexed job takes its role:
      srun -n 5 bslaunch --servers 2 python train.py ...
    """  # noqa: D301 - click wants the backspaces themselves
    if is_agent:
        sys.exit(agent.serve())
    extra = _split_env(env)
    if grace is not None:
        extra["BYTESCHEDULER_GRACE"] = f"{grace:f}"
    if local and hosts is not None:
        raise click.UsageError("--local and -H contradict each other")
    if ssh is not None and hosts is None:
        raise click.UsageError("--ssh goes with -H")
    if not local:
        only_local: Dict[str, object] = {"--record": record, "--record-steps": record_steps}
        if hosts is None:
            only_local = {"--timeout": timeout, "-q": quiet or None, **only_local}
        for name, value in only_local.items():
            if value is not None:
                also = "" if name.startswith("--record") else " or -H"
                raise click.UsageError(f"{name} goes with --local{also}")
    if not local and hosts is None:
        os.environ.update(extra)
        _take_place(command, workers, servers)
        sys.exit(_run_role(command, port_fd))
    listed = [] if hosts is None else _read_hosts(hosts)
    job = local_job.Job(
        command=command,
        num_workers=workers or sum(host.slots for host in listed) or 1,
        num_servers=len(listed) or 1 if servers is None else servers,
        node=node_command(),
        env=extra,
        timeout=timeout,
        grace=Settings.of(as_text({**os.environ, **extra})).grace_s,
        quiet=quiet,
    )
    if hosts is not None:
        sys.exit(_run_on_hosts(job, listed, ssh_job.SSH if ssh is None else ssh))
    if record is None:
        if record_steps is not None:
            raise click.UsageError("--record-steps goes with --record FILE")
        sys.exit(_run_local(job))
    sys.exit(_record(job, record, record_steps))


def main(argv: Optional[List[str]] = None) -> None:
    """Run `bslaunch`."""
    stdout.run(cli, argv, "bslaunch")


if __name__ == "__main__":
    main()
