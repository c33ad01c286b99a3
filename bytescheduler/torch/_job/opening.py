"""The way into the job: what the environment says about this process."""

import os
from typing import Optional

from bytescheduler._native import Worker, check_settings
from bytescheduler._process.say import say
from bytescheduler._process.where import at
from bytescheduler._session.direct import is_direct, open_worker
from bytescheduler._session.place import Place
from bytescheduler._session.termination_report import TerminationReport
from bytescheduler._settings import Settings
from bytescheduler._started.environments import LaunchError, direct_place
from bytescheduler.errors import ConfigError
from bytescheduler.torch._engine.framework import Torch
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._job.meeting import Meeting

__all__ = ["open_session"]

# This process's place in a job.
JOB: Place[TorchSession] = Place()

_ALONE = (
    "bytescheduler: no launcher's variables are set, so this process trains alone; start several "
    "with bslaunch or torchrun"
)


def open_session() -> Optional[TorchSession]:
    """Join the job that the environment describes; None: this process is alone.  Blocks.

    Raises
    ------
    ConfigError
        A setting or a variable of the launcher is wrong.
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
    if is_direct():
        if _is_alone():
            if settings.is_talkative:
                say(_ALONE)
            return None
    else:
        check_settings()
    known = settings.root_host and settings.root_port
    job = at(settings.root_host, settings.root_port) if known else ""
    meeting = Meeting()
    return JOB.join(TorchSession, Torch(), job=job, open_worker=lambda: _open_worker(meeting))


def _open_worker(meeting: Meeting) -> Worker:
    worker = open_worker(meeting.agree)
    if os.environ.get("TORCHELASTIC_RUN_ID"):  # torchrun ends the others as soon as one is lost
        TerminationReport(worker.status).install()
    return worker


def _is_alone() -> bool:
    """Return whether no launcher has started this process."""
    try:
        return not direct_place(os.environ, agrees=True)
    except LaunchError:
        return False  # `open_worker` says why
