"""The thread that tunes a running job, on rank 0."""

import itertools
import math
import pathlib
import statistics
import threading
from typing import Callable, Iterator, List, NamedTuple, Optional, Protocol, Tuple

from bytescheduler._native import Metric
from bytescheduler._process.say import counted
from bytescheduler._tuning.advisor import Advisor, AdvisorError, AdvisorSlow
from bytescheduler._tuning.cache import Cache, CacheError, Place, default_path
from bytescheduler._tuning.drift import Drift
from bytescheduler._tuning.points import PARTITIONS, Point
from bytescheduler._tuning.search import (
    FIRST_SEARCH,
    LATER_SEARCH,
    Found,
    Limits,
    Moved,
    Unsteady,
    optimise,
    settle,
)
from bytescheduler.errors import Error, Timeout

__all__ = ["Steps", "Tuned", "Tuner"]

# Steps at the start of a job, which make buffers and load code.
_WARM_UP_STEPS = 3
# Steps that a change of point takes: one decides it, and in the next the last tensors change over.
_CHANGE_STEPS = 2
# A trial of short steps takes more of them, up to this many seconds or this many steps.
_MIN_TRIAL_S = 0.25
_MAX_SAMPLES = 60
# The shortest and the longest pause, in seconds, between two polls of the steps.
_POLL_S = (0.01, 0.5)
# Steps from one poll to the next while no search runs.
_STEPS_PER_POLL = 8
# A remembered step time is valid within this share of it: other times belong to another link.
_VALID_SHARE = 0.1
# The largest gain that a remembered point may promise: a larger one belongs to another link too.
_MAX_REMEMBERED_GAIN = 2.0
# Seconds that `close` waits for a thread that hangs in a file system; by then the thread does not
# touch the worker any more.
_CLOSE_S = 5.0
# Steps from a search that failed to the next.  The number doubles with each search in a row that
# found the job changed, from the second on.
_RETRY_STEPS = 50
_MAX_DOUBLINGS = 10


class Steps(Protocol):
    """The part of a `Worker` that the tuner uses."""

    @property
    def num_workers(self) -> int: ...
    @property
    def num_servers(self) -> int: ...
    def steps(self) -> List[Tuple[int, float]]: ...
    def retune(self, partition_bytes: int, credit_bytes: int) -> None: ...
    def status(self) -> Optional[Error]: ...
    def measure(self) -> List[Metric]: ...


class Tuned(NamedTuple):
    """The options of a tuner, and where its messages go."""

    by_hand: bool  # the user set the starting point; otherwise the engine chose it for the link
    again: bool  # search again whenever the time of a step changes
    root: str  # the address of the scheduler node
    cache: str  # the file of results; empty: the default one
    # Returns the number of tensors and their bytes.
    declared: Callable[[], Tuple[int, int]]
    say: Callable[[str], None]  # a result, of this job or of an earlier one
    remark: Callable[[str], None]  # a reason why there is none, for users that turned tuning on
    warn: Callable[[str], None]  # a failure, for users that turned tuning on
    complain: Callable[[str], None]  # a fault that the user has to mend


class _Stopped(Exception):
    """`Tuner.close` was called."""


class _Running:
    """The `Job` that the search sees, made of a worker."""

    def __init__(self, worker: Steps, tuned: Tuned, stop: threading.Event) -> None:
        self._worker = worker
        self._tuned = tuned
        self._stop = stop
        self._known = 0  # the number of the latest step that was read
        self._point: Optional[Point] = None
        self._pause = _POLL_S[1]
        self.by_hand = tuned.by_hand

    @property
    def num_workers(self) -> int:
        return self._worker.num_workers

    @property
    def num_servers(self) -> int:
        return self._worker.num_servers

    def model_bytes(self) -> float:
        return float(self._tuned.declared()[1])

    def _new(self) -> List[Tuple[int, float]]:
        try:
            steps = self._worker.steps()
        except Timeout:  # the engine is busy; the steps will be there later
            return []
        new = [(number, seconds) for number, seconds in steps if number > self._known]
        if new:
            self._known = new[-1][0]
        return new

    def all(self, steps_per_poll: float = 0.25) -> Iterator[Tuple[int, float]]:
        """Yield the number and the seconds of each step from the next one on."""
        self._new()
        while True:
            for number, seconds in self._new():
                self._pause = min(max(seconds * steps_per_poll, _POLL_S[0]), _POLL_S[1])
                yield number, seconds
            if self._stop.wait(self._pause):
                raise _Stopped

    def begin(self) -> Point:
        """Return where the job is; from now on only the caller moves it."""
        while True:
            try:
                metrics = {row.name: int(row.value) for row in self._worker.measure()}
                break
            except Timeout:  # the engine is busy
                if self._stop.wait(self._pause):
                    raise _Stopped from None
        here = Point(metrics["partition_bytes"], metrics["credit_bytes"])
        self.go_to(here)
        return here

    def skip(self, count: int) -> None:
        """Wait until `count` steps are over, besides the one under way."""
        for _ in itertools.islice(self.all(), count + 1):
            pass

    def go_to(self, point: Point) -> None:
        """Change over to `point`, behind the steps to come."""
        self._worker.retune(point.partition, point.credit)
        self._point = point

    def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
        if point != self._point:
            self.go_to(point)
            self.skip(_CHANGE_STEPS - 1)
        seconds: List[float] = []
        slow = 0
        for _, second in self.all():
            seconds.append(second)
            slow += bound_s is not None and second > bound_s
            if slow == 2:
                break
            enough = max(samples, math.ceil(_MIN_TRIAL_S / max(second, 1e-6)))
            if len(seconds) >= min(enough, _MAX_SAMPLES):
                break
        return seconds


class Tuner:
    """Tunes the job on a thread of its own until `close`.

    A failure here is a warning; it never disturbs the job, which goes on as it was.
    """

    def __init__(self, worker: Steps, tuned: Tuned) -> None:
        self._worker = worker
        self._tuned = tuned
        self._stop = threading.Event()
        self._warned_of_cache = False  # belongs to the thread
        self._thread = threading.Thread(target=self._run, name="bs-tuner", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """True while the tuner may still change the point."""
        return self._thread.is_alive() and not self._stop.is_set()

    def close(self, reason: str = "") -> None:
        """End the thread and say why; blocks for about a second while the thread asks the engine.

        After some seconds it leaves behind a thread that hangs in the file of results.
        """
        self._stop.set()
        self._thread.join(_CLOSE_S)
        if reason:
            self._tuned.remark(f"tuning ends: {reason}")

    # -- all below on the thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._tune()
        except _Stopped:
            return
        except Error as error:
            if not self._stop.is_set() and not self._over():
                self._tuned.warn(f"tuning ends: {error}; the job goes on as it is")
        except AdvisorError as error:
            if not self._stop.is_set():
                self._tuned.warn(f"tuning ends: {error}; the job goes on as it is")
        except Exception as error:  # no failure of the tuner may end the job
            self._tuned.warn(
                f"tuning ends: {type(error).__name__}: {error}; the job goes on as it is"
            )

    def _over(self) -> bool:
        """Return whether the worker, which reports that itself, has failed or was closed."""
        try:
            return self._worker.status() is not None
        except Error:
            return True

    def _tune(self) -> None:
        job = _Running(self._worker, self._tuned, self._stop)
        job.skip(_WARM_UP_STEPS)
        start = job.begin()
        job.skip(_CHANGE_STEPS - 1)  # the engine may have changed something just before
        if start.partition < PARTITIONS[0]:
            self._tuned.remark(
                f"tuning: {start} suits slow links to several servers, and stays: larger "
                "partitions would be slower there"
            )
            return
        # The next such job looks for this place, so it is taken before further keys are declared.
        place = self._place()
        result = self._from_cache(job, place, start) or self._search(
            job, place, start, FIRST_SEARCH
        )
        drift = Drift()
        drift.searched(result.seconds, result.point != start)
        while self._tuned.again:
            now = self._drifted(job, drift)
            self._tuned.remark(
                f"tuning: a step takes {now:.3g} s instead of {result.seconds:.3g} s: "
                "searching again"
            )
            again = self._search(job, place, result.point, LATER_SEARCH)
            drift.searched(again.seconds, again.point != result.point)
            result = again

    @staticmethod
    def _drifted(job: _Running, drift: Drift) -> float:
        for _, seconds in job.all(_STEPS_PER_POLL):
            now = drift.note(seconds)
            if now is not None:
                return now
        raise AssertionError  # steps never end

    def _place(self) -> Place:
        tensors, size = self._tuned.declared()
        return Place(
            tensors, size, self._worker.num_workers, self._worker.num_servers, self._tuned.root
        )

    def _cache(self) -> Cache:
        path = self._tuned.cache
        return Cache(pathlib.Path(path) if path else default_path())

    def _from_cache(self, job: _Running, place: Place, start: Point) -> Optional[Found]:
        """Return the remembered result if it is still better than where the job is."""
        try:
            cache = self._cache()
            remembered = cache.find(place)
            if remembered is None:
                self._tell_of_other_cluster(cache, place)
                return None
        except CacheError as error:  # the file exists, so this is no matter of settings
            self._tuned.complain(f"tuning: {error}")
            self._warned_of_cache = True
            return None
        point = remembered.point
        seconds = statistics.median(job.measure(start, FIRST_SEARCH.baseline, None))
        gain = seconds / remembered.step_s
        max_gain = 1 + _VALID_SHARE if point == start else _MAX_REMEMBERED_GAIN
        if not 1 - _VALID_SHARE <= gain <= max_gain:
            self._tuned.remark(
                f"tuning: a step takes {seconds:.3g} s, and {cache} has {remembered.step_s:.3g} s "
                f"for {point}: searching again"
            )
            return None
        if point == start:
            return Found(point, seconds, seconds, 1)
        result = settle(job, start, point, FIRST_SEARCH)
        if result.point != point:
            self._tuned.remark(f"tuning: {point}, which {cache} has, is not faster any more")
            return None
        self._tell(result, f"as {cache} has it")
        return result

    def _tell_of_other_cluster(self, cache: Cache, place: Place) -> None:
        cluster = cache.other_cluster(place)
        if cluster is not None:
            self._tuned.say(
                f"tuning: {cache} has this model on another cluster ({cluster}), not on this one "
                f"({place.cluster()}): searching"
            )

    def _warn_of_cache(self, error: CacheError) -> None:
        if not self._warned_of_cache:
            self._tuned.warn(f"tuning: {error}")
        self._warned_of_cache = True

    def _search(self, job: _Running, place: Place, start: Point, limits: Limits) -> Found:
        told = False
        moves = 0
        while True:
            rest = _RETRY_STEPS
            advisor = Advisor(self._stop.is_set)
            try:
                result = optimise(job, start, advisor, limits)
                break
            except Moved as error:
                self._tuned.remark(f"tuning: {error}: searching again")
                start = error.point
                rest = _RETRY_STEPS << min(moves - 1, _MAX_DOUBLINGS) if moves > 0 else 0
                moves += 1
            except Unsteady as error:
                if not told:
                    self._tuned.remark(
                        f"tuning: {error}, too far apart to tell which point is faster; waiting"
                    )
                told = True
            except AdvisorSlow as error:
                if not told:
                    self._tuned.remark(f"tuning: {error}: the processors are busy; waiting")
                told = True
                job.go_to(start)
            except (Error, _Stopped):
                raise
            except Exception:
                job.go_to(start)
                raise
            finally:
                advisor.close()
            job.skip(rest)
        self._tell(result, f"{counted(result.points, 'point')} tried")
        try:
            self._cache().keep(place, result.point, result.seconds)
        except CacheError as error:
            self._warn_of_cache(error)
        return result

    def _tell(self, result: Found, how: str) -> None:
        if result.seconds < result.before:
            less = 100 * (1 - result.seconds / result.before)
            self._tuned.say(
                f"tuning: {result.point}: a step takes {result.seconds:.3g} s instead of "
                f"{result.before:.3g} s, {less:.2g} % less ({how})"
            )
        else:
            self._tuned.remark(f"tuning: nothing is surely faster than {result.point} ({how})")
