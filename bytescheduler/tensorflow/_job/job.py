"""The job of this process, with the sums and objects of TensorFlow."""

from typing import Optional

from bytescheduler._process.say import say
from bytescheduler._session.direct import check_without_nccl
from bytescheduler._session.job import Job, Joined
from bytescheduler._session.objects import Objects
from bytescheduler._session.opening import kind_of, open_session
from bytescheduler._session.place import Place
from bytescheduler._session.relay import Relay
from bytescheduler._settings import Settings
from bytescheduler.tensorflow._engine.session import TensorFlowSession
from bytescheduler.tensorflow._sums.tensors import Tensors
from bytescheduler.tensorflow._sums.variables import Variables

__all__ = ["TensorFlowJoined", "current"]

# This process's place in a job.
PLACE: Place[TensorFlowSession] = Place()


class TensorFlowJoined(Joined[TensorFlowSession]):
    """All that a worker has in the job.

    Parameters
    ----------
    session : TensorFlowSession, optional
        Owned from now on; None where this worker is alone.
    """

    def __init__(self, session: Optional[TensorFlowSession]) -> None:
        super().__init__(session)
        carrier = self.carrier
        relay = None if carrier is None else Relay(carrier)
        self.objects = Objects(relay, self)
        # None where nothing has to be carried.
        self.tensors = None if carrier is None else Tensors(carrier)
        self.variables = None if carrier is None else Variables(carrier, self.objects)


def _join() -> TensorFlowJoined:
    check_without_nccl(Settings.read(), "TensorFlow's tensors")
    session = open_session(PLACE, TensorFlowSession)
    if session is not None and session.rank == 0 and Settings.read().is_talkative:
        say(f"bytescheduler: {kind_of(session)}")
    return TensorFlowJoined(session)


_JOB: Job[TensorFlowJoined] = Job("bytescheduler.tensorflow", _join)


def current() -> Job[TensorFlowJoined]:
    """Return the job of this process."""
    return _JOB
