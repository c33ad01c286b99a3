"""The tensors of each worker in each step, from the events of timelines."""

import math
import statistics
from collections import Counter
from typing import Callable, Dict, Iterable, List, Tuple

from bytescheduler._timeline.files import Event, is_bookkeeping

__all__ = [
    "CRITICAL",
    "OF_WORKERS",
    "PROXY",
    "CriticalWaits",
    "Interval",
    "Step",
    "Tensor",
    "Where",
    "add",
    "add_critical",
    "in_step",
    "of_steps",
    "union",
]

# The categories of a worker's spans while it exchanges a tensor; before that, while its proxy
# waits for it; and from the last gradient of a step to the sum of the most urgent tensor.
OF_WORKERS = ("tensor", "queue", "push", "pull")
PROXY = "proxy"
CRITICAL = "front"
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

    __slots__ = ("_pulled", "_pushed", "begin", "bytes", "end", "priority", "queued")

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
# By rank, number of a round and key: from the last gradient of a step to the sum of its critical
# tensor, the one that the next forward pass needs first.
CriticalWaits = Dict[Tuple[int, int, int], Interval]


def add(steps: Dict[Where, Step], event: Event) -> None:
    """Take a worker's span."""
    place = (event["pid"] - 1, event["args"]["round"])
    steps.setdefault(place, {}).setdefault(event["args"]["key"], Tensor()).add(event)


def add_critical(critical: CriticalWaits, event: Event) -> None:
    """Take a worker's span of a critical tensor."""
    begin, args = event["ts"] / 1e6, event["args"]
    end = begin + event["dur"] / 1e6
    critical[event["pid"] - 1, args["round"], args["key"]] = (begin, end)


def of_steps(critical: CriticalWaits, steps: Dict[Where, Step]) -> Dict[Where, Interval]:
    """Return the critical waits of steps: the rounds of other keys are not steps."""
    return {
        (rank, number): wait
        for (rank, number, key), wait in critical.items()
        if key in steps.get((rank, number), {})
    }


def in_step(rounds: Dict[Where, Step]) -> Dict[Where, Step]:
    """Return the steps without the tensors whose rounds are not the others' steps.

    Some tensors are exchanged more seldom or more often than gradients, such as the workers' notes
    to one another.  Their rounds have other numbers at the same time.  So a tensor is in a step if:

    - it is the script's own, no bookkeeping;
    - its worker sent it as often as most tensors: the median, or one less, as the job may end
      in between;
    - it began after most tensors of the step before, and before most of the step after.
    """
    script_rounds = _kept(rounds, lambda _, key: not is_bookkeeping(key))
    usual = _sent_as_often_as_most(script_rounds)
    middles = {
        place: statistics.median(tensor.begin for tensor in step.values())
        for place, step in usual.items()
    }

    def is_in(place: Where, tensor: Tensor) -> bool:
        rank, number = place
        before = middles.get((rank, number - 1), -math.inf)
        return before <= tensor.begin <= middles.get((rank, number + 1), math.inf)

    return _kept(usual, lambda place, key: is_in(place, usual[place][key]))


def _sent_as_often_as_most(rounds: Dict[Where, Step]) -> Dict[Where, Step]:
    counts = Counter((rank, key) for (rank, _), step in rounds.items() for key in step)
    of_rank: Dict[int, List[int]] = {}  # each as often as it was sent
    for (rank, _), count in counts.items():
        of_rank.setdefault(rank, []).extend([count] * count)
    most = {rank: statistics.median(sent_counts) for rank, sent_counts in of_rank.items()}
    return _kept(rounds, lambda place, key: abs(counts[place[0], key] - most[place[0]]) <= 1)


def _kept(rounds: Dict[Where, Step], wanted: Callable[[Where, int], bool]) -> Dict[Where, Step]:
    steps = {
        place: {key: tensor for key, tensor in step.items() if wanted(place, key)}
        for place, step in rounds.items()
    }
    return {place: step for place, step in steps.items() if step}
