"""The search for the fastest point of a running job: its candidates, its trials and its end.

This module knows no threads, clocks or frameworks: a `Job` runs steps, an `Acquisition` proposes.

The words are the optimiser's.  A point is a candidate until it is tried, a trial is the measurement
of one, and the incumbent is the best trial so far.
"""

import math
import statistics
from typing import List, NamedTuple, Optional, Protocol, Sequence, Tuple

from bytescheduler._tuning.advisor import Advice, Trial
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

__all__ = ["Acquisition", "Found", "Job", "Limits", "Moved", "Unsteady", "optimise", "settle"]

# A trial stops early once its steps take this many times the incumbent's.
_EARLY_STOP_RATIO = 1.15
# The model sees a slow trial as at most this many times the incumbent: one outlier would otherwise
# hide the differences between all other trials.
_CLIP_RATIO = 1.5
# The smallest gain that counts, as a share of a step; it must also exceed twice its standard error.
_MIN_GAIN = 0.01
# A gain of this many times `_MIN_GAIN` is decisive after one round of comparing.
_DECISIVE_GAINS = 2
# Points cannot be told apart while the median step has a standard error above this share of it.
_MAX_ERROR = 0.05
# The standard error that a trial is planned for, as a share of the median step.
_TARGET_ERROR = 0.015
# The most steps that noise can add to a measurement: this many times its usual number.
_MAX_REPEATS = 4
# The job has changed if steps at the same point take this many times as long, or as short.
_CHANGED_RATIO = 1.1
# Trials before the first proposal, the one of the starting point included.
_INITIAL_TRIALS = 3
# The most rungs from a known point to one that the formula alone proposes.
_MAX_LEAP_RUNGS = 4
# A proposal is exhausted below this expected gain, as a share of a step.
_MIN_EXPECTED_GAIN = 0.003
# The search ends after this many exhausted proposals in a row.
_EXHAUSTED_PROPOSALS = 2


class Limits(NamedTuple):
    """The price of a search, in measured steps and in points."""

    baseline: int = 6  # steps at the starting point
    samples: int = 3  # steps in a trial
    points: int = 10
    final: int = 4  # steps at each of the two points of a final round
    rounds: int = 2  # final rounds


FIRST_SEARCH = Limits()
# The link or the model has changed: half as thorough, because the result was right before.
LATER_SEARCH = Limits(points=8, rounds=1)
# The starting point is far slower: a few steps show that, and each of them is expensive.
_BRIEF = Limits(final=3, rounds=1)


class Job(Protocol):
    """Training under way."""

    by_hand: bool  # the user set the starting point, which may be far from a suitable one

    @property
    def num_workers(self) -> int:
        """How many workers the job has."""

    @property
    def num_servers(self) -> int:
        """How many servers the job has."""

    def model_bytes(self) -> float:
        """Return the bytes that a worker pushes in a step."""

    def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
        """Change over to `point` and return the seconds of `samples` steps.

        The list is shorter if two steps took longer than `bound_s`: a single one may be a pause.
        """


class Acquisition(Protocol):
    """Proposes candidates; an `Advisor`."""

    def start(self) -> None:
        """Prepare for the first `ask`, which follows soon."""

    def ask(self, seen: Sequence[Trial]) -> Advice:
        """Return the next candidate."""


class Found(NamedTuple):
    """The result of a search; the job is at `point`."""

    point: Point
    seconds: float  # a step at `point`
    before: float  # a step at the starting point
    points: int  # the number of points that were tried


class Unsteady(Exception):
    """Steps differ too much to compare points."""


class Moved(Exception):
    """Steps at the starting point have changed since the search began, so its trials are void.

    The job is at `point`, the faster one of the starting point and the incumbent.
    """

    def __init__(self, point: Point, before: float, now: float) -> None:
        super().__init__(f"a step takes {now:.3g} s where it took {before:.3g} s before")
        self.point = point


def noise_of(seconds: Sequence[float]) -> float:
    """Return the standard error of the median, in seconds, from the median absolute deviation."""
    middle = statistics.median(seconds)
    deviation = 1.4826 * statistics.median(abs(second - middle) for second in seconds)
    return 1.2533 * deviation / math.sqrt(len(seconds))


def _gains(of_start: Sequence[float], of_other: Sequence[float], min_gains: float = 1) -> bool:
    """Return whether the other point surely gains `min_gains` times the minimum gain."""
    before = statistics.median(of_start)
    error = math.hypot(noise_of(of_start), noise_of(of_other))
    return before - statistics.median(of_other) > max(min_gains * _MIN_GAIN * before, 2 * error)


def settle(job: Job, start: Point, candidate: Point, limits: Limits) -> Found:
    """Compare two points in turn, and stay at `candidate` only if it is surely faster."""
    of_start: List[float] = []
    of_other: List[float] = []
    for _ in range(limits.rounds):
        of_start += job.measure(start, limits.final, None)
        bound = _EARLY_STOP_RATIO * statistics.median(of_start)
        of_other += job.measure(candidate, limits.final, bound)
        if statistics.median(of_other) > bound or _gains(of_start, of_other, _DECISIVE_GAINS):
            break
    before, after = statistics.median(of_start), statistics.median(of_other)
    if _gains(of_start, of_other):
        return Found(candidate, after, before, 2)
    job.measure(start, 1, None)
    return Found(start, before, before, 2)


class _Trials:
    """Measures points and keeps the trials; a second trial of a point counts as one more."""

    def __init__(self, job: Job, start: Point, limits: Limits) -> None:
        self._job = job
        self._limits = limits
        self._start = nearest(start)
        self._exact = start
        self.seen: List[Trial] = []
        self.start_s = 0.0  # a step at the starting point
        self._noise = 0.0  # the standard deviation of one step, in seconds
        self._samples = limits.samples

    def point(self, rungs: Rungs) -> Point:
        """Return the point at `rungs`; the starting point itself stands for its rungs."""
        return self._exact if rungs == self._start else on_rungs(rungs)

    def begin(self) -> None:
        """Measure the starting point, and plan the samples of a trial by its noise."""
        seconds: List[float] = []
        for _ in range(_MAX_REPEATS):
            seconds += self._job.measure(self._exact, self._limits.baseline, None)
            if noise_of(seconds) <= _MAX_ERROR * statistics.median(seconds):
                break
        else:
            raise Unsteady(f"steps take {min(seconds):.3g} to {max(seconds):.3g} s")
        middle = statistics.median(seconds)
        self._noise = noise_of(seconds) * math.sqrt(len(seconds))
        wanted = math.ceil((self._noise / (_TARGET_ERROR * middle)) ** 2)
        most = _MAX_REPEATS * self._limits.samples
        self._samples = min(max(wanted, self._limits.samples), most)
        self.start_s = middle
        self.seen.append(Trial(self._start, middle, noise_of(seconds)))

    def add(self, rungs: Rungs) -> None:
        """Try the candidate at `rungs`."""
        incumbent_s = min(trial.seconds for trial in self.seen)
        bound = _EARLY_STOP_RATIO * incumbent_s
        seconds = self._job.measure(self.point(rungs), self._samples, bound)
        noise = self._noise / math.sqrt(len(seconds))
        clipped = min(statistics.median(seconds), _CLIP_RATIO * incumbent_s)
        self.seen.append(Trial(rungs, clipped, noise))


def _towards(rungs: Rungs, target: Rungs) -> Rungs:
    """Return `target`, or the rungs on the way there that are as far as a leap may go."""
    x, y = (
        here + max(-_MAX_LEAP_RUNGS, min(there - here, _MAX_LEAP_RUNGS))
        for here, there in zip(rungs, target)
    )
    return x, y


def _initial(at: Rungs, formula: Rungs, by_hand: bool) -> Tuple[Rungs, ...]:
    """Return the candidates before the first proposal, in order."""
    home = nearest(DEFAULT)
    if by_hand and max(abs(here - there) for here, there in zip(at, home)) > _MAX_LEAP_RUNGS:
        return home, _towards(home, formula)
    more = (at[0], min(at[1] + 2, len(CREDITS) - 1))
    larger = (min(at[0] + 1, len(PARTITIONS) - 1), more[1])
    return _towards(at, formula), more, larger


def optimise(
    job: Job, start: Point, acquisition: Acquisition, limits: Limits = FIRST_SEARCH
) -> Found:
    """Search from `start`, where the job is, and leave the job at the best point.

    The first trials are `start`, the point that `by_formula` leads to, and one with more in flight.
    If the user set `start` far from the default, the default and the point that the formula leads
    to from there take their place.  The acquisition proposes all further candidates, until it
    expects no gain or `limits.points` are used.  At last the incumbent is compared with `start` in
    turn, briefly if `start` was far slower.

    Raises
    ------
    Moved
        The link, or something else, has changed meanwhile.
    Unsteady
        Steps differ by more than points do.
    AdvisorError
        The acquisition has failed.
    """
    trials = _Trials(job, start, limits)
    at = nearest(start)
    trials.begin()
    acquisition.start()
    formula = by_formula(job.model_bytes(), trials.start_s, job.num_workers, job.num_servers)
    for rungs in dict.fromkeys(_initial(at, nearest(formula), job.by_hand)):
        if rungs != at and len(trials.seen) < _INITIAL_TRIALS:
            trials.add(rungs)
    exhausted = 0
    advice = acquisition.ask(trials.seen)
    while len(trials.seen) < limits.points and exhausted < _EXHAUSTED_PROPOSALS:
        exhausted = exhausted + 1 if advice.gain < _MIN_EXPECTED_GAIN else 0
        trials.add(advice.next)
        advice = acquisition.ask(trials.seen)
    result = _confirm(job, start, trials, advice.best, limits)
    return result._replace(points=len(trials.seen))


def _confirm(job: Job, start: Point, trials: _Trials, best: int, limits: Limits) -> Found:
    """Go to the trial at position `best` if it is faster, and check that `start` is as before."""
    trial = trials.seen[best]
    if trial.at == trials.seen[0].at:
        seconds = statistics.median(job.measure(start, limits.final, None))
        result = Found(start, seconds, seconds, 1)
    else:
        far = trials.start_s > _EARLY_STOP_RATIO * trial.seconds
        result = settle(job, start, trials.point(trial.at), _BRIEF if far else limits)
    if max(result.before / trials.start_s, trials.start_s / result.before) > _CHANGED_RATIO:
        raise Moved(result.point, trials.start_s, result.before)
    return result
