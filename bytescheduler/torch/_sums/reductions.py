"""The least, the greatest or the product of every worker's tensor, by exchanges of the engine."""

import contextlib
from typing import List, Optional, Tuple

import torch

from bytescheduler._native import Pending
from bytescheduler._process.ending import text_of
from bytescheduler._session.rounds import MAX, MIN, PRODUCT, Exchange
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error
from bytescheduler.torch._engine.dtypes import code_of, size_of
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._sums.named_calls import key_of, sum_label, title_of

__all__ = ["Reductions"]

_NAMES = {MIN: "Min", MAX: "Max", PRODUCT: "Product"}
_SMALL_BYTES = 16 << 10  # goes in one exchange, else each worker's server has a shard
_ALIGNED = 64  # elements


class _Reduction:
    """The exchanges of one tensor; see `Round`.

    Parameters
    ----------
    session : TorchSession
        Carries them.
    sum_label : str
        The label of a sum of the same name and number.
    """

    def __init__(self, session: TorchSession, sum_label: str) -> None:
        self._session = session
        self._sum_label = sum_label
        self._left: List[Tuple[int, Pending]] = []

    def add(self, key: int, pending: Pending) -> None:
        self._left.append((key, pending))

    def over(self) -> bool:
        """Return whether all have ended; raise the error of the first that failed."""
        try:
            self._left = [(key, pending) for key, pending in self._left if not pending.over()]
        except Error as error:
            self._fail(error)
            raise
        return not self._left

    def wait(self) -> None:
        """Block until all have ended, or one has failed."""
        while not self.over():
            try:
                self._left[0][1].wait()
            except Error as error:
                self._fail(error)
                raise

    def _fail(self, error: Error) -> None:
        self.quit(error)
        if isinstance(error, ConfigError) and self._sum_label in str(error):
            # A worker has begun a sum, which only the end of the job ends.
            self._session.give_up(text_of(error))

    def quit(self, error: Error) -> None:
        """End the rest on all workers: the others may not have made such an exchange."""
        for key, _ in self._left:
            with contextlib.suppress(Error):  # it has ended, or the job has
                self._session.quit_exchange(key, str(error))


class Reductions:
    """Starts reductions.  Any thread, unless calls have no names.

    Parameters
    ----------
    session : TorchSession
        Carries them.
    """

    def __init__(self, session: TorchSession) -> None:
        self._session = session
        self._timeout_s = Settings.read().straggler_s

    def start(
        self, memory: torch.Tensor, op: int, name: Optional[str], priority: int
    ) -> _Reduction:
        """Begin to reduce in place; never blocks.

        The engine reads and writes the memory until the result is over.

        Parameters
        ----------
        memory : Tensor
            Dense, of the CPU; not empty.
        op : int
            The engine's number.
        name : str, optional
            Without names the calls come in the same order on all workers.
        priority : int
            Larger goes first.

        Raises
        ------
        Error
            The job has failed or is over; what was begun is ended on all workers.
        """
        # Servers keep the ends of earlier reductions, also of those before an `init` anew.
        number, workers = self._session.count_of(name), self._session.num_workers
        everyone = tuple(range(workers))
        begun = _Reduction(self._session, sum_label(name, number))
        width = memory.element_size()
        for place, (first, end) in enumerate(_shards(memory, workers)):
            address = memory.data_ptr() + first * width
            exchange = Exchange(
                key=key_of(name, number, place),
                givers=everyone,
                takers=everyone,
                label=_label(memory, op, name, number),
                home=(number + place) % workers,
                size=(end - first) * width,
                dtype=code_of(memory.dtype),
                op=op,
                send=address,
                receive=address,
            )
            try:
                pending = self._session.start_exchange(
                    exchange,
                    owner=memory,
                    timeout_s=self._timeout_s,
                    completions=None,
                    token=0,
                    priority=priority,
                )
            except Error as error:
                begun.quit(error)
                raise self._session.error_of(error) from error
            begun.add(exchange.key, pending)
        return begun


def _label(memory: torch.Tensor, op: int, name: Optional[str], number: int) -> str:
    dtype = str(memory.dtype).replace("torch.", "")
    return f"{title_of(name, number)}, op={_NAMES[op]}, {memory.numel()} elements of {dtype}"


def _shards(memory: torch.Tensor, workers: int) -> List[Tuple[int, int]]:
    """Return the first element of each shard, and its end."""
    count = memory.numel()
    if size_of(memory) <= _SMALL_BYTES:
        return [(0, count)]
    length = -(-count // (workers * _ALIGNED)) * _ALIGNED
    return [(first, min(first + length, count)) for first in range(0, count, length)]
