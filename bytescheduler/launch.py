"""`bslaunch`: start one role of a job, or a whole job on this host."""

import os
import shutil
import signal
import sys
from typing import Dict, List, NoReturn, Optional, Tuple

import click

from bytescheduler import _local_job

_ROLES = ("scheduler", "server", "worker")
_USAGE_ROLE = (
    "set DMLC_ROLE to scheduler, server or worker to start one role of a job, "
    "or pass --local to start a whole job on this host"
)


def _split_env(pairs: Tuple[str, ...]) -> Dict[str, str]:
    result = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r}: want NAME=VALUE", param_hint="--env")
        result[name] = value
    return result


def _require_command(command: Tuple[str, ...], what: str) -> None:
    if not command:
        raise click.UsageError(
            f"{what} needs a command: bslaunch ... -- python train.py"
        )
    if shutil.which(command[0]) is None:
        click.echo(f"bslaunch: command not found: {command[0]}", err=True)
        sys.exit(127)


def _run_role(
    command: Tuple[str, ...], extra: Dict[str, str], port_fd: Optional[int]
) -> int:
    """Run the role that the environment names; a worker replaces this process."""
    role = os.environ.get("DMLC_ROLE", "")
    if role not in _ROLES:
        given = f"DMLC_ROLE={role}: no such role" if role else "DMLC_ROLE is not set"
        raise click.UsageError(f"{given}; {_USAGE_ROLE}")
    os.environ.update(extra)
    if role == "worker":
        _require_command(command, "a worker")
        _exec_worker(command)
    if command:
        raise click.UsageError(
            f"DMLC_ROLE={role} runs no command; leave out {' '.join(command)}"
        )
    from bytescheduler import server

    def report(port: int) -> None:
        if port_fd is not None:
            os.write(port_fd, f"{port}\n".encode())
            os.close(port_fd)

    return server.run(role, on_listening=report)


def _exec_worker(command: Tuple[str, ...]) -> NoReturn:
    os.environ.setdefault("BYTESCHEDULER_BACKEND", "native")
    os.execvp(command[0], list(command))


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@click.option("--local", is_flag=True, help="Start the whole job on this host.")
@click.option(
    "-w", "--workers", type=click.IntRange(1, 1024), help="Workers (with --local)."
)
@click.option(
    "-s",
    "--servers",
    type=click.IntRange(1, 1024),
    help="Servers (with --local; default 1).",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable for every process.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    help="End the job after this many seconds.",
)
@click.option(
    "-q", "--quiet", is_flag=True, help="No prefixes, and only warnings from the scheduler node and the servers."
)
@click.option("--port-fd", type=int, hidden=True)
@click.version_option(package_name="bytescheduler")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def cli(
    local: bool,
    workers: Optional[int],
    servers: Optional[int],
    env: Tuple[str, ...],
    timeout: Optional[float],
    quiet: bool,
    port_fd: Optional[int],
    command: Tuple[str, ...],
) -> None:
    """Start one role of a bytescheduler job, or a whole job on this host.

    \b
    One role, from the environment (see docs/running.md for the variables):
      DMLC_ROLE=scheduler bslaunch
      DMLC_ROLE=server    bslaunch
      DMLC_ROLE=worker    bslaunch python train.py ...

    \b
    Everything on this host:
      bslaunch --local -w 2 -s 1 -- python train.py ...
    """
    extra = _split_env(env)
    if not local:
        for name, value in (("-w", workers), ("-s", servers), ("--timeout", timeout)):
            if value is not None:
                raise click.UsageError(f"{name} goes with --local; {_USAGE_ROLE}")
        sys.exit(_run_role(command, extra, port_fd))
    _require_command(command, "--local")
    job = _local_job.LocalJob(
        command=list(command),
        num_workers=workers or 1,
        num_servers=servers or 1,
        env=extra,
        timeout=timeout,
        quiet=quiet,
    )
    sys.exit(job.run())


def main(argv: Optional[List[str]] = None) -> None:
    """Run `bslaunch`."""
    # A reader that went away (bslaunch | head) ends us quietly, like any filter.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    cli(argv, prog_name="bslaunch")


if __name__ == "__main__":
    main()
