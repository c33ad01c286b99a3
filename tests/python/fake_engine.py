"""Fakes of a worker, of a framework and of its operations, for a session."""

from typing import Dict, Iterable, List, Optional, Tuple

from bytescheduler.errors import ConfigError, Error, PeerLost, UsageError


class FakeWorker:
    """A job of one worker, or whatever `rank` and `num_workers` say."""

    def __init__(self) -> None:
        self.rank = 0
        self.num_workers = 1
        self.num_servers = 1
        self.place = ""
        self.declared: List[Tuple[int, int, int]] = []
        self.declared_codings: List[object] = []  # of each key
        self.modes: List[bool] = []  # of each call, whether its keys are asynchronous
        self.failure: Optional[Error] = None
        self.closed = False
        self.barriers = 0
        self.explained: List[str] = []  # reasons for the goodbye
        self.retuned: List[Tuple[int, int]] = []
        self.names: Dict[int, str] = {}
        self.given_back: List[Tuple[int, bool]] = []  # keys, and whether for good
        self.framework = ""

    def view(self) -> Tuple[int, int, Tuple[int, ...], int]:
        return 0, self.rank, (0,) * self.num_workers, self.num_servers

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        if self.rank != 0:
            raise UsageError("worker 0 decides about partitions and credit", 8)
        self.retuned.append((partition_bytes, credit_bytes))

    def name_key(self, key: int, name: str) -> None:
        self.names[key] = name

    def name_framework(self, name: str) -> None:
        self.framework = name

    def broadcast(
        self,
        items: "List[Tuple[int, int, int, int]]",
        *,
        owner: object = None,
        asynchronous: bool = False,
        coding: object = None,
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.declared_codings += [coding] * len(items)
        self.declared += [(key, dtype, size) for key, dtype, _, size in items]
        self.modes.append(asynchronous)

    def give_back(self, keys: Iterable[int], *, for_good: bool) -> None:
        self.given_back += [(key, for_good) for key in keys]

    def barrier(self) -> None:
        self.barriers += 1

    def fail(self, why: str) -> None:
        self.failure = PeerLost(f"worker 0 gave up: {why}", 4)

    def explain(self, reason: str) -> None:
        self.explained.append(reason)

    def measure(self, *, timeout_ms: int = 1000) -> "List[object]":
        return []

    def status(self) -> Optional[Error]:
        return self.failure

    def close(self) -> None:
        self.closed = True


class FakeOperations:
    """Those of a framework's engine: `unfinished` of them are pending, and end if waited for."""

    def __init__(self) -> None:
        self.unfinished = 0
        self.drained: List[Optional[float]] = []
        self.closed = False

    def pending(self) -> int:
        return self.unfinished

    def drain(self, timeout: Optional[float] = None) -> bool:
        self.drained.append(timeout)
        return self.unfinished == 0 or timeout is None

    def close(self) -> None:
        self.closed = True


class FrameworkError(Exception):
    """The fake framework's own."""


class FrameworkConfigError(ConfigError, FrameworkError):
    """The fake framework's own, for a wrong setting."""


class FakeFramework:
    """Notes what it is asked."""

    error = FrameworkError
    config_error = FrameworkConfigError
    owner = "thing"

    def __init__(self) -> None:
        self.abandoned = 0
        self.released = 0
        self.forgotten = 0

    def release(self) -> None:
        self.released += 1

    def abandon(self) -> None:
        self.abandoned += 1

    def forget(self) -> None:
        self.forgotten += 1
