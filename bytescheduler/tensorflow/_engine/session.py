"""A session whose rounds are operations of TensorFlow."""

import ctypes
from typing import List, Sequence, Tuple

from bytescheduler._native import Gate, Worker
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import Round
from bytescheduler.tensorflow._engine.interrupts import Interrupts
from bytescheduler.tensorflow._library.loading import connect, interrupt

__all__ = ["TensorFlowSession", "job_number"]

# The number of the latest job of this process, from 1.
_NUMBERS = [0]


def job_number() -> int:
    """Return the number of the job that this process is in, or was in last."""
    return _NUMBERS[0]


class _Operations:
    """See `Source`: the operations of TensorFlow that a gate counts, as one round."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._interrupts = Interrupts(interrupt)

    def unfinished(self) -> List[Round]:
        """See `Source`."""
        return [self]

    def over(self) -> bool:
        """See `Round`."""
        return self._gate.pending() == 0

    def wait(self) -> None:
        """See `Round`."""
        self._gate.wait()

    def at_end(self) -> None:
        """See `Source`: a graph that runs on gets an error from now on."""
        self._interrupts.close()
        connect(None)
        self._gate.shut()


class TensorFlowSession(RoundSession):
    """A `RoundSession` that the operations of TensorFlow reach through a gate.

    Parameters
    ----------
    worker : Worker
        Owned from now on.
    """

    framework_name = "tensorflow"

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        gate = Gate(worker)
        _NUMBERS[0] += 1
        try:
            connect(gate, job_number())
        except BaseException:
            gate.shut()  # it keeps the worker, which could not be closed
            raise
        self._tf_operations = _Operations(gate)
        self.count(self._tf_operations)

    def declare_zeros(self, tensors: Sequence[Tuple[int, int, int]]) -> None:
        """Declare keys, each with a dtype's code and its bytes.  Blocks."""
        memory = [(ctypes.c_char * size)() for _, _, size in tensors]
        self.declare(
            [
                (key, code, ctypes.addressof(zeros), size)
                for (key, code, size), zeros in zip(tensors, memory)
            ],
            owner=memory,
        )
