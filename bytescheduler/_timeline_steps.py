"""What the tensors of each worker did in each step, out of the events of timelines."""

import math
import statistics
from typing import Dict, Iterable, List, Tuple

from bytescheduler._timeline_files import Event

__all__ = ["OF_WORKERS", "Interval", "Step", "Tensor", "Where", "add", "in_step", "union"]

# The categories of a worker's spans.
OF_WORKERS = ("tensor", "queue", "push", "pull")
# Begin and end, in seconds.
Interval = Tuple[float, float]


def union(intervals: Iterable[Interval]) -> List[Interval]:
    """Return the times in which at least one of the intervals lasts, in order and apart."""
    apart: List[Interval] = []
    for begin, end in sorted(intervals):
        if apart and begin <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((begin, end))
    return apart


class Tensor:
    """A tensor in one round, and its partitions; times in seconds."""

    def __init__(self) -> None:
        self.begin = math.inf
        self.end = -math.inf
        self.bytes = 0  # sent
        self.priority = -math.inf
        self.queued: List[Interval] = []
        self._pushed: Dict[int, Interval] = {}
        self._pulled: Dict[int, Interval] = {}

    def add(self, event: Event) -> None:
        """Take a span of this tensor."""
        category, args = event["cat"], event["args"]
        span = (event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        self.begin = min(self.begin, span[0])
        self.end = max(self.end, span[1])
        self.priority = max(self.priority, args.get("priority", -math.inf))
        if category == "queue":
            self.queued.append(span)
        elif category == "push":
            self.bytes += args["bytes"]
            self._pushed[args["part"]] = span
        elif category == "pull":
            self._pulled[args["part"]] = span

    @property
    def sent(self) -> List[Interval]:
        """When partitions were on the wire: sent, and not yet acknowledged."""
        return list(self._pushed.values())

    @property
    def waited(self) -> List[Interval]:
        """When acknowledged partitions waited for their sums."""
        both = ((self._pushed[part], p) for part, p in self._pulled.items() if part in self._pushed)
        return [(push[1], pull[1]) for push, pull in both if pull[1] > push[1]]

    @property
    def last_wait(self) -> float:
        """For how long the tensor, all acknowledged, waited for the last of its sums.

        NaN if no sum came.
        """
        if not self._pulled:
            return math.nan
        summed = max(end for _, end in self._pulled.values())
        acknowledged = max((end for _, end in self._pushed.values()), default=summed)
        return max(0.0, summed - acknowledged)


# The tensors of a step, by key.
Step = Dict[int, Tensor]
# Rank and number of a round.
Where = Tuple[int, int]


def add(steps: Dict[Where, Step], event: Event) -> None:
    """Take a worker's span."""
    where = (event["pid"] - 1, event["args"]["round"])
    steps.setdefault(where, {}).setdefault(event["args"]["key"], Tensor()).add(event)


def in_step(rounds: Dict[Where, Step]) -> Dict[Where, Step]:
    """Return the steps without the tensors whose rounds are not the others' steps.

    What is exchanged more seldom or more often than gradients, such as what workers agree on from
    time to time, has other numbers at the same time.  A tensor is in a step if it began nearer to
    the middle (median) of what began in that step than to those of the steps before and after.
    """
    middles = {
        where: statistics.median(tensor.begin for tensor in step.values())
        for where, step in rounds.items()
    }

    def is_in(where: Where, tensor: Tensor) -> bool:
        rank, number = where
        beside = (middles.get((rank, number + by)) for by in (-1, 1))
        distance = abs(tensor.begin - middles[where])
        return all(m is None or distance <= abs(tensor.begin - m) for m in beside)

    steps = {
        where: {key: tensor for key, tensor in step.items() if is_in(where, tensor)}
        for where, step in rounds.items()
    }
    return {where: step for where, step in steps.items() if step}
