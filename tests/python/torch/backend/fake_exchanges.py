"""The engine's exchanges between threads of one process, each of which is a rank."""

import ctypes
import datetime
import random
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist
from fake_stagings import FakeStagings

from bytescheduler._session.groups.members import Members
from bytescheduler._session.rounds import MAX, MIN, PRODUCT, SUM, Exchange
from bytescheduler.errors import Closed, ConfigError, Error, Timeout
from bytescheduler.torch._backend.completer import Completer
from bytescheduler.torch._backend.group import Group

PATIENCE_S = 20.0
_DTYPES = {
    0: torch.float32,
    1: torch.float64,
    2: torch.float16,
    3: torch.uint8,
    4: torch.int32,
    5: torch.int8,
    6: torch.int64,
    12: torch.bfloat16,
}
_OPS: Dict[int, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    SUM: torch.add,
    MIN: torch.minimum,
    MAX: torch.maximum,
    PRODUCT: torch.mul,
}
_ADDRESSES = ("send", "receive")


def _statement(exchange: Exchange) -> Dict[str, Any]:
    fields = exchange._asdict()
    return {name: value for name, value in fields.items() if name not in _ADDRESSES}


class FakePending:
    """An exchange of one rank."""

    def __init__(self, job: "FakeExchanges", exchange: Exchange, timeout_s: float) -> None:
        self.job = job
        self.exchange = exchange
        self.end = time.monotonic() + timeout_s
        self.is_over = False
        self.error: Optional[Error] = None
        self.tell: Callable[[], None] = lambda: None

    def finish(self, error: Optional[Error] = None) -> None:
        if not self.is_over:
            self.is_over, self.error = True, error
            self.tell()

    def over(self) -> bool:
        with self.job.changed:
            self.job.deliver()
            if not self.is_over and time.monotonic() > self.end:
                self.job.time_out(self.exchange.key)
            if self.error is not None:
                raise type(self.error)(str(self.error), self.error.code)
            return self.is_over

    def wait_for(self, timeout_ms: int) -> bool:
        with self.job.changed:
            self.job.deliver()
            if not self.is_over:
                self.job.changed.wait(timeout_ms / 1000)
        return self.over()


class _Round:
    """All that ranks have said of a key."""

    def __init__(self, rank: int, exchange: Exchange) -> None:
        self.first = rank
        self.exchange = exchange
        self.bytes: Dict[int, bytes] = {}
        self.pendings: Dict[int, FakePending] = {}
        self.error: Optional[Error] = None
        self.is_delivered = False

    def is_complete(self) -> bool:
        takers = set(self.exchange.takers)
        return set(self.exchange.givers) <= set(self.bytes) and takers <= set(self.pendings)

    def fail(self, error: Error) -> None:
        self.error = self.error or error
        for pending in self.pendings.values():
            pending.finish(self.error)

    def deliver(self) -> None:
        self.is_delivered = True
        exchange = self.exchange
        data = self._result() if exchange.size else b""
        for rank in exchange.takers:
            pending = self.pendings[rank]
            if exchange.size and not pending.is_over:
                assert pending.exchange.receive
                ctypes.memmove(pending.exchange.receive, data, exchange.size)
            pending.finish()

    def _result(self) -> bytes:
        givers = sorted(self.exchange.givers)
        if len(givers) == 1:
            return self.bytes[givers[0]]
        dtype = _DTYPES[self.exchange.dtype]
        parts = [torch.frombuffer(bytearray(self.bytes[rank]), dtype=dtype) for rank in givers]
        total = parts[0]
        for part in parts[1:]:
            total = _OPS[self.exchange.op](total, part)
        return bytes(total.view(torch.uint8).numpy())


class FakeExchanges:
    """The job; with a seed, exchanges read and end in any order, and only when a rank looks.

    Attributes
    ----------
    labels : list of str
        All that was stated, in order.
    """

    def __init__(self, size: int, seed: Optional[int] = None) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.rounds: Dict[int, _Round] = {}
        self.labels: List[str] = []
        self.bytes_given: Dict[int, int] = dict.fromkeys(range(size), 0)
        self.store = dist.HashStore()
        self._ready: List[Callable[[], None]] = []
        self._random = None if seed is None else random.Random(seed)

    def start(self, rank: int, exchange: Exchange, timeout_s: float) -> FakePending:
        assert len(exchange.label.encode()) <= 200
        assert rank in exchange.givers or rank in exchange.takers
        assert timeout_s > 0
        assert exchange.home in range(self.size)
        pending = FakePending(self, exchange, timeout_s)
        with self.changed:
            self.labels.append(exchange.label)
            meeting = self.rounds.setdefault(exchange.key, _Round(rank, exchange))
            assert rank not in meeting.pendings, "a key is never used again"
            meeting.pendings[rank] = pending
            if _statement(meeting.exchange) != _statement(exchange):
                meeting.fail(self._mismatch(meeting, rank, exchange))
            if meeting.error is not None:
                pending.finish(meeting.error)
            elif rank in exchange.givers:
                self.bytes_given[rank] += exchange.size
                self._ready.append(lambda: self._give(meeting, rank, pending))
            else:
                self._look_at(meeting)
            self.deliver(everything=self._random is None)
            self.changed.notify_all()
        return pending

    def _give(self, meeting: _Round, rank: int, pending: FakePending) -> None:
        """Read a giver's memory, which is its own until then."""
        if pending.is_over:
            return
        exchange = pending.exchange
        meeting.bytes[rank] = ctypes.string_at(exchange.send, exchange.size)
        if rank not in exchange.takers:
            pending.finish()
        self._look_at(meeting)

    def _look_at(self, meeting: _Round) -> None:
        if meeting.error is None and meeting.is_complete():
            self._ready.append(meeting.deliver)

    @staticmethod
    def _mismatch(meeting: _Round, rank: int, exchange: Exchange) -> Error:
        return ConfigError(
            f'worker {meeting.first} called "{meeting.exchange.label}", and worker {rank} called '
            f'"{exchange.label}"',
            1,
        )

    def deliver(self, *, everything: bool = False) -> None:
        """Let one giver give, or one complete exchange end, or all of them."""
        while self._ready:
            at = 0 if self._random is None else self._random.randrange(len(self._ready))
            self._ready.pop(at)()
            self.changed.notify_all()
            if not everything:
                return

    def time_out(self, key: int) -> None:
        meeting = self.rounds[key]
        missing = sorted(set(meeting.exchange.givers) - set(meeting.bytes))
        meeting.fail(Timeout(f"{meeting.exchange.label}: still missing: {missing}", 2))

    def quit(self, rank: int, key: int, reason: str) -> None:
        with self.changed:
            if key in self.rounds and not self.rounds[key].is_delivered:
                self.rounds[key].fail(Closed(f"worker {rank} quit: {reason}", 3))
            self.changed.notify_all()

    def fail(self, error: Error) -> None:
        """Fail the job."""
        with self.changed:
            for meeting in self.rounds.values():
                meeting.fail(error)
            self.changed.notify_all()


class FakeCompletions:
    """See `Completions`."""

    def __init__(self, job: FakeExchanges) -> None:
        self._job = job
        self._tokens: List[int] = []
        self._is_woken = False

    def add(self, token: int) -> None:
        self._tokens.append(token)

    def wait(self, timeout_ms: int) -> List[int]:
        with self._job.changed:
            self._job.deliver()
            if not self._tokens and not self._is_woken:
                self._job.changed.wait(min(timeout_ms, 5) / 1000)
            tokens, self._tokens, self._is_woken = self._tokens, [], False
        return tokens

    def wake(self) -> None:
        with self._job.changed:
            self._is_woken = True
            self._job.changed.notify_all()


class FakeCarrier:
    """See `Carrier`; also a session with one rank of the job."""

    is_open = True

    def __init__(self, job: FakeExchanges, rank: int) -> None:
        self.job = job
        self.rank = rank
        self.num_workers = job.size
        self.failure: Optional[Error] = None
        self.refusal: Optional[Error] = None  # of each start
        self.sources: List[object] = []
        self.priorities: Dict[int, int] = {}  # of exchanges, by key

    def count(self, source: object) -> None:
        self.sources.append(source)

    def new_completions(self) -> FakeCompletions:
        return FakeCompletions(self.job)

    def start_exchange(
        self,
        exchange: Exchange,
        *,
        owner: object,
        timeout_s: float,
        completions: Optional[FakeCompletions],
        token: int,
        priority: int,
    ) -> FakePending:
        if self.refusal is not None:
            raise self.refusal
        if exchange.size:
            assert owner, "the engine keeps the memory"
        pending = self.job.start(self.rank, exchange, timeout_s)
        self.priorities[exchange.key] = priority
        with self.job.changed:
            if completions is not None:
                if pending.is_over:
                    completions.add(token)
                pending.tell = lambda: completions.add(token)
        return pending

    def reprioritise_exchange(self, key: int, priority: int) -> None:
        assert key in self.priorities
        self.priorities[key] = priority

    def quit_exchange(self, key: int, reason: str) -> None:
        self.job.quit(self.rank, key, reason)

    def error_of(self, error: Error) -> Error:
        return error


class Ranks:
    """Threads, each a rank of a job with process groups; with stagings, one for each rank."""

    def __init__(
        self,
        size: int,
        *,
        seed: Optional[int] = None,
        timeout_s: float = 20,
        stagings: Sequence[FakeStagings] = (),
    ) -> None:
        self.size = size
        self.stagings = stagings
        self.job = FakeExchanges(size, seed)
        self.timeout = datetime.timedelta(seconds=timeout_s)
        self.carriers = [FakeCarrier(self.job, rank) for rank in range(size)]
        self.completers = [Completer(carrier) for carrier in self.carriers]
        self.groups: List[Group] = []

    def group(self, rank: int, ranks: Optional[Sequence[int]] = None, name: str = "") -> Group:
        """Return a group of a rank."""
        members = tuple(range(self.size) if ranks is None else ranks)
        group = Group(
            Members(name or "the default group", name, members, members.index(rank)),
            None if len(members) == 1 else self.carriers[rank],
            None if len(members) == 1 else self.completers[rank],
            store=self.job.store,
            stagings=self.stagings[rank] if self.stagings else None,
            timeout=self.timeout,
        )
        self.groups.append(group)
        return group

    def run(self, call: Callable[[int, Group], Any]) -> List[Any]:
        """Call on all ranks at once, each with the default group; return results or errors."""
        results: List[Any] = [None] * self.size

        def body(rank: int) -> None:
            try:
                results[rank] = call(rank, self.group(rank))
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"a rank still waits: {self.job.labels[-8:]}"
        return results

    def well(self, call: Callable[[int, Group], Any]) -> List[Any]:
        """Do as `run`; an error of a rank is the test's."""
        results = self.run(call)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def close(self) -> None:
        """End the threads of all ranks."""
        for completer in self.completers:
            completer.close()
        for stagings in self.stagings:
            stagings.close()


def has_a_dropped_sum_behind_a_barrier(_rank: int, group: Group) -> None:
    """Drop the handle of a sum; the barrier ends it."""
    tensor = torch.ones(40_000)
    group.allreduce([tensor])
    group.barrier().wait()
    assert tensor[0] == tensor[-1] == 2


__all__ = [
    "FakeCarrier",
    "FakeExchanges",
    "Ranks",
    "has_a_dropped_sum_behind_a_barrier",
]
