"""The store of PyTorch's launchers, by which processes agree on a port."""

import datetime
import os
import threading
from typing import Any, Optional

from bytescheduler._process.say import plain, say
from bytescheduler._settings import Settings
from bytescheduler.errors import Timeout

__all__ = ["Meeting"]

_SILENT_S = 5.0  # until a line explains the wait


class Meeting:
    """The way of this process to the store, which process 0 or torchrun has."""

    def __init__(self) -> None:
        self._store: Any = None  # process 0 keeps its store until its peers have read

    def agree(self, port: Optional[int]) -> int:
        """Return the port that process 0 has; other processes pass None.  Blocks.

        Raises
        ------
        Timeout
            Not all processes came within BYTESCHEDULER_TIMEOUT.
        """
        from torch.distributed import rendezvous  # a build of PyTorch may be without

        settings = Settings.read()
        waiting = _waiting()
        begun = threading.Timer(_SILENT_S, say, [f"bytescheduler: {waiting}"])
        begun.daemon = True
        if settings.is_talkative:
            begun.start()
        try:
            timeout = datetime.timedelta(seconds=settings.timeout_s)
            self._store, _, _ = next(iter(rendezvous("env://", timeout=timeout)))
            # torchrun's store outlives its workers, which may start again.
            key = f"bytescheduler port {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
            if port is not None:
                self._store.set(key, str(port))
            return int(self._store.get(key))
        except RuntimeError as error:
            failure = plain(str(error).partition("\n")[0])
            raise Timeout(f"{waiting}; {failure}", 2) from None
        finally:
            begun.cancel()


def _waiting() -> str:
    """Return a sentence about the wait, and about its cure."""
    variables = os.environ
    place = f"{plain(variables['MASTER_ADDR'])}:{plain(variables['MASTER_PORT'])}"
    return (
        f"process RANK={plain(variables['RANK'])} waits for the others at {place} (MASTER_ADDR, "
        f"MASTER_PORT); start all {plain(variables['WORLD_SIZE'])} (WORLD_SIZE) with equal values"
    )
