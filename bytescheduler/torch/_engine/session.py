"""A session whose tensors are PyTorch's; its errors keep the engine's classes."""

import contextlib
from typing import Iterator, NoReturn, Sequence, Tuple

import torch

from bytescheduler._native import Pending, Worker
from bytescheduler._session.session import Session, clamped
from bytescheduler.errors import Error
from bytescheduler.torch._engine.dtypes import code_of, size_of
from bytescheduler.torch._engine.framework import Rounds, Source, Torch

__all__ = ["TorchSession"]


class TorchSession(Session):
    """A `Session` that declares PyTorch's tensors and starts their rounds.

    Parameters
    ----------
    worker : Worker
        Owned from now on.
    """

    def __init__(self, worker: Worker) -> None:
        self._rounds = Rounds()
        super().__init__(worker, self._rounds, Torch())

    def count(self, source: Source) -> None:
        """Let the end of the job wait for the rounds of `source`, as long as it lives."""
        self._rounds.add(source)

    def declare_tensors(self, tensors: Sequence[Tuple[int, torch.Tensor]]) -> None:
        """Declare keys with dense tensors, which get rank 0's bytes.  Blocks."""
        items = [
            (key, code_of(tensor.dtype), tensor.data_ptr(), size_of(tensor))
            for key, tensor in tensors
        ]
        self.declare(items, owner=tensors)

    def start(self, key: int, send: torch.Tensor, recv: torch.Tensor, priority: int) -> Pending:
        """Begin the next round of `key`; both tensors are dense and do not overlap."""
        size = send.numel() * send.element_size()
        try:
            return self._worker.start_push_pull(
                key,
                send.data_ptr(),
                recv.data_ptr(),
                size,
                owner=(send, recv),
                priority=clamped(priority),
            )
        except Error as error:
            self._raise(error)

    def wait(self, pending: Pending) -> None:
        """Block until a round is over; raise what it failed with, with the users' names."""
        try:
            pending.wait()
        except Error as error:
            self._raise(error)

    def average(self, total: torch.Tensor) -> None:
        """Make the mean of a sum, in place, as one multiplication."""
        total.mul_(1.0 / self.num_workers)

    def give_up(self, why: str) -> None:
        """Fail the job on every worker; the caller raises an error here."""
        self._reported = True
        self._worker.fail(why)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Give errors the users' names; unlike its base it keeps their classes."""
        try:
            yield
        except Error as error:
            raise self._named(error) from error

    def _named(self, error: Error) -> Error:
        return type(error)(self._names.in_text(str(error)), error.code)

    def _raise(self, failure: Error) -> NoReturn:
        self._reported = True
        raise self._named(failure) from failure
