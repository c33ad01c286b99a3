"""The job of this process, from init() to shutdown()."""

from typing import Callable, Optional, Protocol, Set

from bytescheduler._settings import Settings
from bytescheduler.errors import UsageError
from bytescheduler.torch._device.devices import Devices
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._job.opening import open_session
from bytescheduler.torch._sums.named_sums import NamedSums
from bytescheduler.torch._sums.objects import Objects
from bytescheduler.torch._sums.relay import Relay

__all__ = ["Flushes", "Job", "current"]


class Flushes(Protocol):
    """An object that has updates to make, at the latest when the job ends."""

    def flush(self) -> None:
        """Make them.  Blocks."""


class Joined:
    """All that a worker has in the job.

    Parameters
    ----------
    session : TorchSession, optional
        Owned from now on; None where this worker is alone.
    records : bool
        Whether a timeline is written, which may be made a profile of.
    devices : Devices
        Those of this process.
    """

    def __init__(
        self,
        session: Optional[TorchSession],
        *,
        records: bool = False,
        devices: Devices,
    ) -> None:
        self.session = session
        self.rank = 0 if session is None else session.rank
        self.size = 1 if session is None else session.num_workers
        # Alone nothing has to be carried; a timeline shows what is.
        self.carrier = session if self.size > 1 or records else None
        relay = None if self.carrier is None else Relay(self.carrier)
        self.devices = devices
        # Kept alive, as a script may drop its optimizer after the last step.
        self.unflushed: Set[Flushes] = set()
        self.sums = NamedSums(self.carrier, self.devices)
        self.objects = Objects(relay, self.rank, self.size)
        self.local_rank = 0 if self.carrier is None else self.carrier.local_rank
        self.local_size = 1 if self.carrier is None else self.carrier.local_size


class Job:
    """The one job of this process."""

    def __init__(self, open_session: Callable[[], Optional[TorchSession]]) -> None:
        self._open_session = open_session
        self._joined: Optional[Joined] = None
        self._left = False
        self.devices = Devices()  # a test gives its own before `join`

    @property
    def is_joined(self) -> bool:
        """True between `join` and `leave`."""
        return self._joined is not None

    def join(self) -> None:
        """Join; a second call does nothing.  Blocks.

        Raises
        ------
        UsageError
            This process has left its job.
        ConfigError, Timeout, PeerLost
            As `Worker.open`.
        """
        if self._joined is not None:
            return
        if self._left:
            raise UsageError(
                "init: shutdown() has left the job, and a process joins one job; call shutdown() "
                "once, at the end",
                5,
            )
        session = self._open_session()
        records = bool(Settings.read().timeline)
        self._joined = Joined(session, records=records, devices=self.devices)

    def get(self) -> Joined:
        """Return what this worker has in the job.

        Raises
        ------
        ValueError
            There was no `join`, or `leave` came after it.
        """
        if self._joined is None:
            said = "shutdown() has left the job" if self._left else "call init() first"
            raise ValueError(f"bytescheduler.torch is not initialised: {said}")
        return self._joined

    def flush(self) -> None:
        """Make all updates that wait, of all optimizers.  Blocks."""
        for each in [] if self._joined is None else list(self._joined.unflushed):
            each.flush()

    def leave(self) -> None:
        """Make pending updates, wait for rounds, and leave; a second call does nothing.  Blocks."""
        joined = self._joined
        if joined is None:
            return
        self.flush()
        self._joined, self._left = None, True
        if joined.session is not None:
            joined.session.close()


_JOB = Job(open_session)


def current() -> Job:
    """Return the job of this process."""
    return _JOB
