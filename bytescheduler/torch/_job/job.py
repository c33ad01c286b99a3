"""The job of this process, with the sums and objects of PyTorch."""

from typing import Callable, Mapping, Optional

from bytescheduler._process.say import say
from bytescheduler._session.job import Job, Joined
from bytescheduler._session.opening import kind_of, open_session
from bytescheduler._session.place import Place
from bytescheduler._session.relay import Relay
from bytescheduler._settings import Settings
from bytescheduler.torch._device.devices import Devices
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._job.meeting import Meeting, OpenStore
from bytescheduler.torch._sums.objects import TensorObjects
from bytescheduler.torch._sums.tensor_sums import TensorSums

__all__ = ["TorchJob", "TorchJoined", "current", "open_by_store"]

# This process's place in a job.
PLACE: Place[TorchSession] = Place()
_MEETING = Meeting()


class TorchJoined(Joined[TorchSession]):
    """All that a worker has in the job, PyTorch's tensors included.

    Parameters
    ----------
    session : TorchSession, optional
        Owned from now on; None where this worker is alone.
    devices : Devices
        Those of this process.
    """

    def __init__(self, session: Optional[TorchSession], *, devices: Devices) -> None:
        super().__init__(session)
        relay = None if self.carrier is None else Relay(self.carrier)
        self.devices = devices
        self.sums = TensorSums(self.carrier, self.devices)
        self.objects = TensorObjects(relay, self, self.sums)


def open_by_store(variables: Mapping[str, str], open_store: OpenStore) -> Optional[TorchSession]:
    """Join the job that the variables tell of, or share this process's session.  Blocks.

    The caller closes the session.  See `open_session` for `variables` and errors, and `Meeting` for
    `open_store`.
    """
    agree = Meeting(variables, open_store).agree
    return PLACE.shared() or open_session(PLACE, TorchSession, agree, variables=variables)


def _open() -> Optional[TorchSession]:
    # torch.distributed may have joined with a rank that no variable has.
    session = PLACE.shared() or open_session(PLACE, TorchSession, _MEETING.agree)
    if session is not None and session.rank == 0 and Settings.read().is_talkative:
        say(f"bytescheduler: {_opened(session)}")
    return session


def _opened(session: TorchSession) -> str:
    """Return what worker 0 says of the job that it has joined."""
    if session.num_workers == 1:
        return f"{kind_of(session)}; a single worker has nothing to average"
    return f"{kind_of(session)}; a DistributedOptimizer crosses the barrier where it can"


class TorchJob(Job[TorchJoined]):
    """The one job of this process."""

    def __init__(self, open_session: Callable[[], Optional[TorchSession]] = _open) -> None:
        super().__init__(
            "bytescheduler.torch", lambda: TorchJoined(open_session(), devices=self.devices)
        )
        self.devices = Devices()  # a test gives its own before `join`


_JOB = TorchJob()


def current() -> TorchJob:
    """Return the job of this process."""
    return _JOB
