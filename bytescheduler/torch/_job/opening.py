"""The way into the job: what the environment says about this process."""

import os
from typing import Optional

from bytescheduler._native import check_settings
from bytescheduler._process.where import at
from bytescheduler._session.place import Place
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError
from bytescheduler.torch._engine.framework import Torch
from bytescheduler.torch._engine.session import TorchSession

__all__ = ["open_session"]

# This process's place in a job.
JOB: Place[TorchSession] = Place()


def open_session() -> Optional[TorchSession]:
    """Join the job that the environment describes; None: this process is alone.  Blocks.

    Raises
    ------
    ConfigError
        A setting is wrong, or other processes are there but no servers.
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
    if not settings.role:
        return _open_without_servers()
    check_settings()
    known = settings.root_host and settings.root_port
    return JOB.join(
        TorchSession, Torch(), job=at(settings.root_host, settings.root_port) if known else ""
    )


def _open_without_servers() -> Optional[TorchSession]:
    """Join a job that another launcher started, or be alone."""
    size = os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
    if size == "1":
        return None
    raise ConfigError(
        f"init: the launcher started {size} workers and no servers; start the job with "
        "bslaunch --local -w 2 -- python SCRIPT, or bslaunch with -H for several hosts",
        1,
    )
