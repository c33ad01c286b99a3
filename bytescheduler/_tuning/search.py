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

__all__ = ["Asks", "Found", "Job", "Limits", "Unsteady", "look", "settle"]

# What is slower by so much than the best is not looked at for longer; and no more is told than
# this, or the advisor would see nothing else.
_TOO_SLOW = 1.15
_MOST_TOLD = 1.5
# A gain below this, or below twice its standard error, is none.
_WORTH = 0.01
# Steps whose median is not known better than this, by so many times the usual number, say nothing
# about points.
_UNSTEADY = 0.05
_MORE = 4
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
    points: int = 11
    final: int = 4  # at each of the two, in each of the rounds
    rounds: int = 2


FIRST_SEARCH = Limits()
# The link or the model has changed: half as thorough, as it was right before.
LATER_SEARCH = Limits(points=8, rounds=1)


class Job(Protocol):
    """Training that goes on."""

    num_workers: int
    num_servers: int

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


def noise_of(seconds: Sequence[float]) -> float:
    """Return the standard error of the median, from the spread of the middle half or so."""
    middle = statistics.median(seconds)
    deviation = 1.4826 * statistics.median(abs(second - middle) for second in seconds)
    return 1.2533 * deviation / math.sqrt(len(seconds))


def settle(job: Job, start: Point, other: Point, limits: Limits) -> Found:
    """Compare two points in turn, and stay at `other` only if it is surely faster."""
    of_start: List[float] = []
    of_other: List[float] = []
    for _ in range(limits.rounds):
        of_start += job.measure(start, limits.final, None)
        of_other += job.measure(other, limits.final, None)
    before, after = statistics.median(of_start), statistics.median(of_other)
    doubt = math.hypot(noise_of(of_start), noise_of(of_other))
    if before - after > max(_WORTH * before, 2 * doubt):
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
        self._noise = 0.0  # of one step
        self._samples = limits.samples

    def point(self, rungs: Rungs) -> Point:
        """Return the point there; where it began, that is the one it began with."""
        return self._exact if rungs == self._start else on_rungs(rungs)

    def begin(self) -> float:
        """Measure where the job is; return the seconds of a step."""
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
        self.seen.append(Seen(self._start, middle, noise_of(seconds)))
        return middle

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


def _first(at: Rungs, formula: Rungs) -> Tuple[Rungs, ...]:
    """Return what is looked at before the advisor is asked: known places, then around them."""
    home = nearest(DEFAULT)
    if max(abs(here - there) for here, there in zip(at, home)) > _LEAP:
        return home, _towards(home, formula)
    more = (at[0], min(at[1] + 2, len(CREDITS) - 1))
    larger = (min(at[0] + 1, len(PARTITIONS) - 1), more[1])
    return _towards(at, formula), more, larger


def look(job: Job, start: Point, advisor: Asks, limits: Limits = FIRST_SEARCH) -> Found:
    """Search from `start`, where the job is, and leave the job at what was found.

    First where it is, where the formula of `by_formula` leads, and with more in flight, or from far
    away at the default, and where the formula leads from there; then where the advisor sees most to
    gain, until it sees nothing or all `limits.points` are used; what looks best is then compared
    with `start` in turn, unless that was far slower.

    Raises
    ------
    Unsteady
        Steps differ by more than points do.
    AdvisorError
        There is no more advice.
    """
    seeing = _Seeing(job, start, limits)
    at = nearest(start)
    step_s = seeing.begin()
    advisor.start()
    formula = by_formula(job.model_bytes(), step_s, job.num_workers, job.num_servers)
    for rungs in dict.fromkeys(_first(at, nearest(formula))):
        if rungs != at and len(seeing.seen) < _FIRST:
            seeing.look(rungs)
    hopeless = 0
    advice = advisor.ask(seeing.seen)
    while len(seeing.seen) < limits.points and hopeless < 2:
        hopeless = hopeless + 1 if advice.gain < _NO_GAIN else 0
        seeing.look(advice.next)
        advice = advisor.ask(seeing.seen)
    best = seeing.seen[advice.best].at
    if best == at:
        seconds = job.measure(start, limits.final, None)
        after = statistics.median(seconds)
        return Found(start, after, after, len(seeing.seen))
    point = seeing.point(best)
    if step_s > _TOO_SLOW * seeing.seen[advice.best].seconds:
        after = statistics.median(job.measure(point, limits.final, None))
        if step_s > _TOO_SLOW * after:
            return Found(point, after, step_s, len(seeing.seen))
    return settle(job, start, point, limits)._replace(points=len(seeing.seen))
