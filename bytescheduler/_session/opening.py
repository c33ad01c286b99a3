"""The way into a job, which the environment describes, for a framework without an engine."""

import os
from typing import Callable, Optional, TypeVar

from bytescheduler._native import Worker, check_settings
from bytescheduler._process.say import counted
from bytescheduler._process.where import at
from bytescheduler._session.direct import (
    Agree,
    agrees,
    by_workers,
    check_left_over,
    is_direct,
    open_worker,
    settings_of_launcher,
)
from bytescheduler._session.place import Place
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import WithoutEngine
from bytescheduler._session.termination_report import TerminationReport
from bytescheduler._settings import Settings
from bytescheduler._started.environments import ends_survivors
from bytescheduler._started.hosted import hosts_server
from bytescheduler.errors import ConfigError, Error, UsageError

__all__ = ["kind_of", "open_session"]

_S = TypeVar("_S", bound=RoundSession)


def open_session(
    place: Place[_S], make: Callable[[Worker], _S], agree: Optional[Agree] = None
) -> Optional[_S]:
    """Join the job that the environment describes; None: this process is alone.  Blocks.

    Parameters
    ----------
    place : Place
        This process's place in a job.
    make : callable
        Makes a session of a worker, which it then owns.
    agree : callable, optional
        See `open_worker`.

    Raises
    ------
    ConfigError
        A setting or a variable of the launcher is wrong.
    UsageError
        This process has left its job, and this launcher gives it no other.
    Timeout, PeerLost
        As `Worker.open`.
    """
    settings = Settings.read()
    if settings.role not in ("", "worker"):
        raise ConfigError(
            f"init: DMLC_ROLE={settings.role}, but a training script is a worker; start this role "
            "with python -m bytescheduler.server",
            1,
        )
    check_left_over()
    reason = ""
    if not is_direct():
        check_settings()
        reason = "its servers end with their last worker"
    elif not settings_of_launcher(os.environ, agrees=True):
        return None
    elif hosts_server(os.environ):
        reason = "its scheduler node ends with the last worker"
    elif settings.root_port:
        reason = "DMLC_PS_ROOT_PORT gives it one port"
    elif not agrees(os.environ) or agree is None:
        reason = "this launcher gives it one port, and others several, such as torchrun"
    job = at(settings.root_host, settings.root_port) if reason else ""
    if reason and place.has_left(job):
        raise UsageError(
            f"init: shutdown() has left the job, and a process joins one job here, as {reason}; "
            "call shutdown() once, at the end",
            5,
        )
    session = place.join(make, WithoutEngine(), job=job, open_worker=lambda: _open_worker(agree))
    session.hosts_server = is_direct()
    return session


def kind_of(session: RoundSession) -> str:
    """Return the kind of the job, with its workers and servers, for a line of the log."""
    workers = counted(session.num_workers, "worker")
    if session.hosts_server:
        return f"direct job of {workers}, each with a server in its process"
    return f"job of {workers} and {counted(session.num_servers, 'server')}"


def _open_worker(agree: Optional[Agree]) -> Worker:
    worker = open_worker(agree)

    def failure() -> Optional[Error]:
        error = worker.status()
        return None if error is None else by_workers(error)

    if ends_survivors(os.environ):
        TerminationReport(failure if is_direct() else worker.status).install()
    return worker
