"""A session whose tensors are PyTorch's; its errors keep the engine's classes."""

import contextlib
from typing import Iterator, NamedTuple, NoReturn, Optional, Sequence, Tuple

import torch

from bytescheduler._native import Coding, Pending, Worker
from bytescheduler._session.session import Session, clamped
from bytescheduler.errors import Error, UsageError
from bytescheduler.torch._engine.dtypes import address_of, code_of, size_of
from bytescheduler.torch._engine.framework import Round, Rounds, Source, Torch

__all__ = ["RoundCall", "TorchSession"]


class RoundCall(NamedTuple):
    """The options of one round."""

    priority: int = 0
    average: bool = False
    called: int = 0  # see `Worker.start_push_pull`
    at_once: bool = False
    coding: Optional[Coding] = None
    deferred: bool = False  # see `Pending.starter`
    source: Optional[torch.Tensor] = None  # on a device: what is sent becomes a copy of it


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
        self._mean = 1.0 / worker.num_workers

    @property
    def failure(self) -> Optional[Error]:
        """The error that the job failed with, or None."""
        return self._worker.status()

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

    @property
    def local_rank(self) -> int:
        """Position among the workers of this host, from 0."""
        return self._worker.local_rank

    @property
    def local_size(self) -> int:
        """How many workers this host has."""
        return self._worker.local_size

    def broadcast_from(self, root: int, tensors: Sequence[Tuple[int, torch.Tensor]]) -> None:
        """Overwrite dense tensors with those of worker `root`, whose keys have no sums.  Blocks."""
        items = [(key, *address_of(tensor)) for key, tensor in tensors]
        with self.translated():
            self._worker.broadcast_from(root, items, owner=tensors)

    def start(self, key: int, send: torch.Tensor, recv: torch.Tensor, call: RoundCall) -> Pending:
        """Begin the next round of `key`; both tensors are dense, apart, and in the CPU's memory.

        Raises
        ------
        UsageError
            One is not in the CPU's memory, which the engine reads and writes.
        """
        if not (send.is_cpu and recv.is_cpu):
            where = recv.device if send.is_cpu else send.device
            why = f"key {key}: its memory is on {where}; give the engine tensors of the CPU"
            raise self._named(UsageError(why, 5))
        size = send.numel() * send.element_size()
        owner: Tuple[torch.UntypedStorage, ...] = (send.untyped_storage(), recv.untyped_storage())
        if call.source is not None:
            owner += (call.source.untyped_storage(),)
        try:
            return self._worker.start_push_pull(
                key,
                send.data_ptr(),
                recv.data_ptr(),
                size,
                owner=owner,
                priority=clamped(call.priority),
                called=call.called,
                at_once=call.at_once,
                factor=self._mean if call.average else 1.0,
                coding=call.coding,
                deferred=call.deferred,
            )
        except Error as error:
            self._raise(error)

    def wait(self, pending: Round) -> None:
        """Block until a round is over; raise what it failed with, with the users' names.

        Raises
        ------
        UsageError
            This is a forked process, in which no round ends.
        """
        self._check_not_forked()
        try:
            pending.wait()
        except Error as error:
            self._raise(error)

    def _check_not_forked(self) -> None:
        if self._forked:
            raise UsageError(
                "this process was forked from a worker, whose job it has no part in: call "
                "optimizer.synchronize() before the fork, and train in the worker",
                5,
            )

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
