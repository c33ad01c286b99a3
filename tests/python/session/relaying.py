"""Workers whose bytes travel through a list."""

import ctypes
from typing import List, Sequence, Tuple

from fake_engine import FakeWorker

from bytescheduler._session.round_session import RoundSession

__all__ = ["RelayingWorker", "relaying_sessions"]


class RelayingWorker(FakeWorker):
    """Appends what the root sends to `sent`, and takes it from there on other ranks."""

    def __init__(self, rank: int, sent: List[bytes]) -> None:
        super().__init__()
        self.rank = rank
        self.num_workers = 2
        self.sent = sent
        self.keys: List[int] = []

    def broadcast_from(
        self, root: int, memory: Sequence[Tuple[int, int, int]], *, owner: object
    ) -> None:
        for key, address, size in memory:
            self.keys.append(key)
            if self.rank == root:
                self.sent.append(ctypes.string_at(address, size))
            else:
                ctypes.memmove(address, self.sent.pop(0), size)


def relaying_sessions() -> Tuple[RoundSession, RoundSession]:
    """Return the sessions of worker 0, which must send first, and of worker 1."""
    sent: List[bytes] = []
    first, second = (RoundSession(RelayingWorker(rank, sent)) for rank in (0, 1))  # type: ignore[arg-type]
    return first, second
