"""Looks for the fastest point while training goes on: what is tried, how long, and when to stop.

Nothing here knows of threads, clocks or MXNet: a `Job` runs steps, an `Asks` says where to look.
"""

import math
import statistics
from typing import List, NamedTuple, Optional, Protocol, Sequence, Tuple

from bytescheduler._tuning.advisor import Advice, Seen
from bytescheduler._tuning.points import (
    CREDITS,
    DEFAULT,
    PARTITIONS,
    Point,
    Rungs,
    by_formula,
    nearest,
    on_rungs,
)

__all__ = ["Asks", "Found", "Job", "Limits", "Moved", "Unsteady", "look", "settle"]

# What is slower by so much than the best is not looked at for longer; and no more is told than
# this, or the advisor would see nothing else.
_TOO_SLOW = 1.15
_MOST_TOLD = 1.5
# A gain below this, or below twice its standard error, is none.
_WORTH = 0.01
# And one of so many times that is plain after one round of comparing.
_PLAIN = 2
# Steps whose median is not known better than this, by so many times the usual number, say nothing
# about points.
_UNSTEADY = 0.05
_MORE = 4
# Steps that take so many times as long, or as short, at the same point are those of another link.
_MOVED = 1.1
# A median should be known so well; for that a point is measured for longer, up to so many times.
_KNOWN = 0.015
# The advisor is asked once it has so many points, and believed twice that nothing is to be had.
_FIRST = 3
_LEAP = 4
_NO_GAIN = 0.003


class Limits(NamedTuple):
    """What a search may cost, in steps that are measured at a point, and in points."""

    baseline: int = 6
    samples: int = 3
    points: int = 10
    final: int = 4  # at each of the two, in each of the rounds
    rounds: int = 2


FIRST_SEARCH = Limits()
# The link or the model has changed: half as thorough, as it was right before.
LATER_SEARCH = Limits(points=8, rounds=1)
# Where it began was far slower, so that little tells it again, and costs enough.
_BRIEF = Limits(final=3, rounds=1)


class Job(Protocol):
    """Training that goes on."""

    num_workers: int
    num_servers: int
    by_hand: bool  # where it begins was set, and may be far from what suits

    def model_bytes(self) -> float:
        """Return the bytes that a worker pushes in a step."""

    def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
        """Change over to `point` and return the seconds of so many steps.

        Fewer once two take longer than `bound_s`: one alone may be a pause.
        """


class Asks(Protocol):
    """An `Advisor`."""

    def start(self) -> None:
        """Make it ready to be asked; it will be soon."""

    def ask(self, seen: Sequence[Seen]) -> Advice:
        """Return where to look next."""


class Found(NamedTuple):
    """What a search ends with; the job is there."""

    point: Point
    seconds: float  # a step
    before: float  # a step where it began
    points: int  # that were tried


class Unsteady(Exception):
    """Steps differ too much to tell points apart."""


class Moved(Exception):
    """Steps take another time than when the search began, so that its points say nothing.

    The job is at `point`, the faster of where the search began and of what looked best.
    """

    def __init__(self, point: Point, before: float, now: float) -> None:
        super().__init__(f"a step takes {now:.3g} s where it took {before:.3g} s before")
        self.point = point


def noise_of(seconds: Sequence[float]) -> float:
    """Return the standard error of the median, from the spread of the middle half or so."""
    middle = statistics.median(seconds)
    deviation = 1.4826 * statistics.median(abs(second - middle) for second in seconds)
    return 1.2533 * deviation / math.sqrt(len(seconds))


def _gains(of_start: Sequence[float], of_other: Sequence[float], times: float = 1) -> bool:
    """Return whether the other point is surely faster, by so many times what is worth it."""
    before = statistics.median(of_start)
    doubt = math.hypot(noise_of(of_start), noise_of(of_other))
    return before - statistics.median(of_other) > max(times * _WORTH * before, 2 * doubt)


def settle(job: Job, start: Point, other: Point, limits: Limits) -> Found:
    """Compare two points in turn, and stay at `other` only if it is surely faster."""
    of_start: List[float] = []
    of_other: List[float] = []
    for _ in range(limits.rounds):
        of_start += job.measure(start, limits.final, None)
        bound = _TOO_SLOW * statistics.median(of_start)
        of_other += job.measure(other, limits.final, bound)
        if statistics.median(of_other) > bound or _gains(of_start, of_other, _PLAIN):
            break
    before, after = statistics.median(of_start), statistics.median(of_other)
    if _gains(of_start, of_other):
        return Found(other, after, before, 2)
    job.measure(start, 1, None)
    return Found(start, before, before, 2)


class _Seeing:
    """Measures points; one that is measured again counts as often."""

    def __init__(self, job: Job, start: Point, limits: Limits) -> None:
        self._job = job
        self._limits = limits
        self._start = nearest(start)
        self._exact = start
        self.seen: List[Seen] = []
        self.start_s = 0.0  # a step where it began
        self._noise = 0.0  # of one step
        self._samples = limits.samples

    def point(self, rungs: Rungs) -> Point:
        """Return the point there; where it began, that is the one it began with."""
        return self._exact if rungs == self._start else on_rungs(rungs)

    def begin(self) -> None:
        """Measure where the job is."""
        seconds: List[float] = []
        for _ in range(_MORE):
            seconds += self._job.measure(self._exact, self._limits.baseline, None)
            if noise_of(seconds) <= _UNSTEADY * statistics.median(seconds):
                break
        else:
            raise Unsteady(f"steps take {min(seconds):.3g} to {max(seconds):.3g} s")
        middle = statistics.median(seconds)
        self._noise = noise_of(seconds) * math.sqrt(len(seconds))
        wanted = math.ceil((self._noise / (_KNOWN * middle)) ** 2)
        self._samples = min(max(wanted, self._limits.samples), _MORE * self._limits.samples)
        self.start_s = middle
        self.seen.append(Seen(self._start, middle, noise_of(seconds)))

    def look(self, rungs: Rungs) -> None:
        """Measure a point."""
        best = min(point.seconds for point in self.seen)
        seconds = self._job.measure(self.point(rungs), self._samples, _TOO_SLOW * best)
        noise = self._noise / math.sqrt(len(seconds))
        told = min(statistics.median(seconds), _MOST_TOLD * best)
        self.seen.append(Seen(rungs, told, noise))


def _towards(rungs: Rungs, other: Rungs) -> Rungs:
    """Return `other`, or what lies on the way there, no further than theory is to be trusted."""
    x, y = (here + max(-_LEAP, min(there - here, _LEAP)) for here, there in zip(rungs, other))
    return x, y


def _first(at: Rungs, formula: Rungs, by_hand: bool) -> Tuple[Rungs, ...]:
    """Return what is looked at before the advisor is asked: known places, then around them."""
    home = nearest(DEFAULT)
    if by_hand and max(abs(here - there) for here, there in zip(at, home)) > _LEAP:
        return home, _towards(home, formula)
    more = (at[0], min(at[1] + 2, len(CREDITS) - 1))
    larger = (min(at[0] + 1, len(PARTITIONS) - 1), more[1])
    return _towards(at, formula), more, larger


def look(job: Job, start: Point, advisor: Asks, limits: Limits = FIRST_SEARCH) -> Found:
    """Search from `start`, where the job is, and leave the job at what was found.

    First where it is, where the formula of `by_formula` leads, and with more in flight, or where
    somebody set it far away at the default, and where the formula leads from there; then where the
    advisor sees most to gain, until it sees nothing or all `limits.points` are used; what looks
    best is then compared with `start` in turn, only briefly if that was far slower.

    Raises
    ------
    Moved
        The link, or something else, has become another meanwhile.
    Unsteady
        Steps differ by more than points do.
    AdvisorError
        There is no more advice.
    """
    seeing = _Seeing(job, start, limits)
    at = nearest(start)
    seeing.begin()
    advisor.start()
    formula = by_formula(job.model_bytes(), seeing.start_s, job.num_workers, job.num_servers)
    for rungs in dict.fromkeys(_first(at, nearest(formula), job.by_hand)):
        if rungs != at and len(seeing.seen) < _FIRST:
            seeing.look(rungs)
    hopeless = 0
    advice = advisor.ask(seeing.seen)
    while len(seeing.seen) < limits.points and hopeless < 2:
        hopeless = hopeless + 1 if advice.gain < _NO_GAIN else 0
        seeing.look(advice.next)
        advice = advisor.ask(seeing.seen)
    found = _confirm(job, start, seeing, advice.best, limits)
    return found._replace(points=len(seeing.seen))


def _confirm(job: Job, start: Point, seeing: _Seeing, best: int, limits: Limits) -> Found:
    """Go to what looked best if it is, and if steps where it began take as long as then."""
    seen = seeing.seen[best]
    if seen.at == seeing.seen[0].at:
        seconds = statistics.median(job.measure(start, limits.final, None))
        found = Found(start, seconds, seconds, 1)
    else:
        far = seeing.start_s > _TOO_SLOW * seen.seconds
        found = settle(job, start, seeing.point(seen.at), _BRIEF if far else limits)
    if max(found.before / seeing.start_s, seeing.start_s / found.before) > _MOVED:
        raise Moved(found.point, seeing.start_s, found.before)
    return found
