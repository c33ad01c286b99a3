"""The least, the greatest and the product of tensors: the keys of their exchanges."""

from typing import Any, Counter, List, Optional, cast

import torch

from bytescheduler._session.rounds import MAX, MIN, Exchange
from bytescheduler.torch._sums.reductions import Reductions


class Session:
    """Takes note of exchanges, none of which ends."""

    num_workers = 2

    def __init__(self) -> None:
        self.keys: List[int] = []
        self._counts: Counter[Optional[str]] = Counter()

    def count_of(self, name: Optional[str]) -> int:
        self._counts[name] += 1
        return self._counts[name]

    def start_exchange(self, exchange: Exchange, **_: object) -> object:
        self.keys.append(exchange.key)
        return object()


def test_reductions_of_a_session_never_share_a_key() -> None:
    session = Session()
    memory = torch.zeros(8192)
    for _ in range(2):  # `init` anew in the same session
        reductions = Reductions(cast("Any", session))
        for name in (None, "loss", "norm"):
            for op in (MIN, MAX):
                reductions.start(memory, op, name, 0)
    assert len(session.keys) == 2 * 3 * 2 * 2  # two shards each
    assert len(set(session.keys)) == len(session.keys)
