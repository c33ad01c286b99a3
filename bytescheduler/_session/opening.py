"""The way into a job, which the environment describes, for every framework."""

import os
from typing import Callable, Mapping, NamedTuple, Optional, TypeVar

from bytescheduler._native import Worker, check_settings
from bytescheduler._process.say import counted
from bytescheduler._process.where import at
from bytescheduler._session.direct import (
    Agree,
    agrees,
    by_workers,
    check_kind,
    check_left_over,
    is_direct,
    open_worker,
    settings_of_launcher,
)
from bytescheduler._session.framework import Framework
from bytescheduler._session.place import Place
from bytescheduler._session.rounds import WithoutEngine
from bytescheduler._session.session import Session
from bytescheduler._session.termination import TerminationReport, ignore_late_signals
from bytescheduler._settings import Settings
from bytescheduler._started import ready
from bytescheduler._started.environments import ends_survivors
from bytescheduler._started.hosted import hosts_server
from bytescheduler.errors import ConfigError, Error, UsageError

__all__ = ["kind_of", "open_session"]

_S = TypeVar("_S", bound=Session)


class _OnlyJob(NamedTuple):
    """The one job that a process may join; without a root it may join others later."""

    root: str  # the address of the scheduler node
    reason: str


def _only_job(
    settings: Settings, agree: Optional[Agree], variables: Mapping[str, str]
) -> Optional[_OnlyJob]:
    """Return the job of this process, or None if it is alone."""
    if not is_direct(variables):
        check_settings()
        root = at(settings.root_host, settings.root_port)
        return _OnlyJob(root, "its servers end with their last worker")
    meets = agree is not None and agrees(variables)
    place = settings_of_launcher(variables, agrees=meets)
    if not place:
        return None
    port = place.get("DMLC_PS_ROOT_PORT", "")
    root = at(place["DMLC_PS_ROOT_URI"], int(port) if port.isdigit() else 0)
    if hosts_server(variables):
        return _OnlyJob(root, "its scheduler node ends with the last worker")
    if settings.root_port:
        return _OnlyJob(root, "DMLC_PS_ROOT_PORT gives it one port")
    if not meets:
        reason = "this launcher gives it one port, and others several, such as torchrun"
        return _OnlyJob(root, reason)
    return _OnlyJob("", "")


def open_session(
    place: Place[_S],
    make: Callable[[Worker], _S],
    agree: Optional[Agree] = None,
    framework: Optional[Framework] = None,
    variables: Mapping[str, str] = os.environ,
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
    framework : Framework, optional
        Its errors are raised; without it the engine's own, for users of init() and shutdown().
    variables : mapping of str to str
        Those of this process, if a launcher's are not in its environment.

    Raises
    ------
    ConfigError
        A setting or a variable of the launcher is wrong.
    UsageError, framework.error
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
    check_left_over(variables)
    check_kind(variables)
    only = _only_job(settings, agree, variables)
    if only is None:
        return None
    if framework is None and place.has_left(only.root):
        raise UsageError(
            "init: shutdown() has left the job, and a process joins one job here, as "
            f"{only.reason}; call shutdown() once, at the end",
            5,
        )
    session = place.join(
        make,
        framework or WithoutEngine(),
        job=only.root,
        open_worker=lambda: _open_worker(agree, variables),
    )
    session.hosts_server = is_direct(variables)
    return session


def kind_of(session: Session) -> str:
    """Return the kind of the job, with its workers and servers, for a line of the log."""
    workers = counted(session.num_workers, "worker")
    if session.hosts_server:
        distribution = "each " if session.num_workers > 1 else ""
        return f"direct job of {workers}, {distribution}with a server in its process"
    return f"job of {workers} and {counted(session.num_servers, 'server')}"


def _open_worker(agree: Optional[Agree], variables: Mapping[str, str]) -> Worker:
    ready.tell_register()
    worker = open_worker(agree, variables)

    def failure() -> Optional[Error]:
        error = worker.status()
        return None if error is None else by_workers(error)

    ignore_late_signals()
    if ends_survivors(os.environ):
        TerminationReport(failure if is_direct(variables) else worker.status).install()
    return worker
