"""The thread that tunes a running job, on rank 0."""

import itertools
import math
import pathlib
import statistics
import threading
from typing import Callable, Iterator, List, NamedTuple, Optional, Protocol, Tuple

from bytescheduler._native import Figure
from bytescheduler._tuning.advisor import Advisor, AdvisorError, AdvisorSlow
from bytescheduler._tuning.cache import Cache, CacheError, Place, default_path
from bytescheduler._tuning.drift import Drift
from bytescheduler._tuning.points import Point
from bytescheduler._tuning.search import (
    FIRST_SEARCH,
    LATER_SEARCH,
    Found,
    Limits,
    Moved,
    Unsteady,
    look,
    settle,
)
from bytescheduler.errors import Error, Timeout

__all__ = ["Steps", "Tuned", "Tuner"]

# The first steps of a job make buffers and load code.
_WARM_UP = 3
# The step in which a change is decided, and the next, in which the last tensors change over.
_CHANGING = 2
# Of short steps more are taken, so that a point is looked at for so long.
_LEAST_S = 0.25
_MOST_SAMPLES = 60
_LOOK_S = (0.01, 0.5)  # how long from one look at the steps to the next
# Once a search is over a look at this many steps is enough.
_STEPS_A_LOOK = 8
# As long as where a remembered point was found, or it was another link.
_AS_LONG = 0.1
# What a remembered point may gain; if it seems to be more, that was another link too.
_MOST_GAIN = 2.0
# So long `close` waits for a thread that hangs in a file system; it touches the worker no more.
_CLOSE_S = 5.0
# Steps until a search begins after one that could not; after each whose steps became others, but
# the first, twice as many.
_UNSTEADY_REST = 50
_MOST_DOUBLINGS = 10


class Steps(Protocol):
    """What is used of a `Worker`."""

    @property
    def num_workers(self) -> int: ...
    @property
    def num_servers(self) -> int: ...
    def steps(self) -> List[Tuple[int, float]]: ...
    def retune(self, partition_bytes: int, credit_bytes: int) -> None: ...
    def status(self) -> Optional[Error]: ...
    def measure(self) -> List[Figure]: ...


class Tuned(NamedTuple):
    """What is tuned, and how."""

    by_hand: bool  # where the job begins was set, and is not what the engine chose for the link
    again: bool  # whenever steps take another time
    root: str
    cache: str  # a file; empty: the usual one
    # How many tensors there are, and their bytes.
    declared: Callable[[], Tuple[int, int]]
    say: Callable[[str], None]  # of what was found, now or by jobs before
    remark: Callable[[str], None]  # of why nothing is, for those who asked
    warn: Callable[[str], None]  # of what does not work, for those who asked
    complain: Callable[[str], None]  # of what somebody has to mend


class _Stopped(Exception):
    """Nobody wants to know any more."""


class _Running:
    """The job, as the search sees it."""

    def __init__(self, worker: Steps, tuned: Tuned, stop: threading.Event) -> None:
        self._worker = worker
        self._tuned = tuned
        self._stop = stop
        self._known = 0  # the latest step that was looked at
        self._point: Optional[Point] = None
        self._pause = _LOOK_S[1]
        self.by_hand = tuned.by_hand
        self.num_workers = worker.num_workers
        self.num_servers = worker.num_servers

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

    def all(self, a_look: float = 0.25) -> Iterator[Tuple[int, float]]:
        """Return all steps from the next on, and their numbers; so many are over at each look."""
        self._new()
        while True:
            for number, seconds in self._new():
                self._pause = min(max(seconds * a_look, _LOOK_S[0]), _LOOK_S[1])
                yield number, seconds
            if self._stop.wait(self._pause):
                raise _Stopped

    def begin(self) -> Point:
        """Return where the job is; from now on only the caller moves it."""
        while True:
            try:
                figures = {row.name: int(row.value) for row in self._worker.measure()}
                break
            except Timeout:  # the engine is busy
                if self._stop.wait(self._pause):
                    raise _Stopped from None
        here = Point(figures["partition_bytes"], figures["credit_bytes"])
        self.go_to(here)
        return here

    def skip(self, count: int) -> None:
        """Wait until so many steps are over, besides the one under way."""
        for _ in itertools.islice(self.all(), count + 1):
            pass

    def go_to(self, point: Point) -> None:
        """Change over to `point`, behind the steps to come."""
        self._worker.retune(point.partition, point.credit)
        self._point = point

    def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
        if point != self._point:
            self.go_to(point)
            self.skip(_CHANGING - 1)
        seconds: List[float] = []
        slow = 0
        for _, second in self.all():
            seconds.append(second)
            slow += bound_s is not None and second > bound_s
            if slow == 2:
                break
            enough = max(samples, math.ceil(_LEAST_S / max(second, 1e-6)))
            if len(seconds) >= min(enough, _MOST_SAMPLES):
                break
        return seconds


class Tuner:
    """Tunes until `close`; a thread of its own.

    Nothing that goes wrong here disturbs the job: it is a warning, and the job goes on as it was.
    """

    def __init__(self, worker: Steps, tuned: Tuned) -> None:
        self._worker = worker
        self._tuned = tuned
        self._stop = threading.Event()
        self._warned_of_cache = False  # of the thread
        self._thread = threading.Thread(target=self._run, name="bs-tuner", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it may still change something."""
        return self._thread.is_alive() and not self._stop.is_set()

    def close(self, why: str = "") -> None:
        """End the thread and say why; blocks while it asks the engine, a second or so.

        A thread that hangs where the file of results is, is left behind after some seconds.
        """
        self._stop.set()
        self._thread.join(_CLOSE_S)
        if why:
            self._tuned.remark(f"tuning ends: {why}")

    # -- all below on the thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._tune()
        except _Stopped:
            return
        except Error as why:
            if not self._stop.is_set() and not self._over():
                self._tuned.warn(f"tuning ends: {why}; the job goes on as it is")
        except AdvisorError as why:
            if not self._stop.is_set():
                self._tuned.warn(f"tuning ends: {why}; the job goes on as it is")
        except Exception as why:  # nothing here is worth the job
            self._tuned.warn(f"tuning ends: {type(why).__name__}: {why}; the job goes on as it is")

    def _over(self) -> bool:
        """Whether the worker has failed or was closed, which it says itself."""
        try:
            return self._worker.status() is not None
        except Error:
            return True

    def _tune(self) -> None:
        job = _Running(self._worker, self._tuned, self._stop)
        job.skip(_WARM_UP)
        start = job.begin()
        job.skip(_CHANGING - 1)  # the engine may have changed something just before
        # What the next such job will look for, though keys may be declared until a search is over.
        place = self._place()
        found = self._from_cache(job, place, start) or self._search(job, place, start, FIRST_SEARCH)
        drift = Drift()
        drift.searched(found.seconds, found.point != start)
        while self._tuned.again:
            now = self._drifted(job, drift)
            self._tuned.remark(
                f"tuning: a step takes {now:.3g} s instead of {found.seconds:.3g} s: "
                "searching again"
            )
            again = self._search(job, place, found.point, LATER_SEARCH)
            drift.searched(again.seconds, again.point != found.point)
            found = again

    @staticmethod
    def _drifted(job: _Running, drift: Drift) -> float:
        for _, seconds in job.all(_STEPS_A_LOOK):
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
        given = self._tuned.cache
        return Cache(pathlib.Path(given) if given else default_path())

    def _from_cache(self, job: _Running, place: Place, start: Point) -> Optional[Found]:
        """Return what was found before, if it still is better than where the job is."""
        try:
            cache = self._cache()
            remembered = cache.find(place)
            if remembered is None:
                self._tell_of_other_cluster(cache, place)
                return None
        except CacheError as why:  # a file that is there, so whoever sets nothing hears of it too
            self._tuned.complain(f"tuning: {why}")
            self._warned_of_cache = True
            return None
        point = remembered.point
        seconds = statistics.median(job.measure(start, FIRST_SEARCH.baseline, None))
        gain = seconds / remembered.step_s
        most_gain = 1 + _AS_LONG if point == start else _MOST_GAIN
        if not 1 - _AS_LONG <= gain <= most_gain:
            self._tuned.remark(
                f"tuning: a step takes {seconds:.3g} s, and {cache} has {remembered.step_s:.3g} s "
                f"for {point}: searching again"
            )
            return None
        if point == start:
            return Found(point, seconds, seconds, 1)
        found = settle(job, start, point, FIRST_SEARCH)
        if found.point != point:
            self._tuned.remark(f"tuning: {point}, which {cache} has, is not faster any more")
            return None
        self._tell(found, f"as {cache} has it")
        return found

    def _tell_of_other_cluster(self, cache: Cache, place: Place) -> None:
        other = cache.other_cluster(place)
        if other is not None:
            self._tuned.say(
                f"tuning: {cache} has this model on another cluster ({other}), not on this one "
                f"({place.cluster()}): searching"
            )

    def _warn_of_cache(self, why: CacheError) -> None:
        if not self._warned_of_cache:
            self._tuned.warn(f"tuning: {why}")
        self._warned_of_cache = True

    def _search(self, job: _Running, place: Place, start: Point, limits: Limits) -> Found:
        told = False
        moves = 0
        while True:
            rest = _UNSTEADY_REST
            advisor = Advisor(self._stop.is_set)
            try:
                found = look(job, start, advisor, limits)
                break
            except Moved as why:
                self._tuned.remark(f"tuning: {why}: searching again")
                start = why.point
                rest = _UNSTEADY_REST << min(moves - 1, _MOST_DOUBLINGS) if moves > 0 else 0
                moves += 1
            except Unsteady as why:
                if not told:
                    self._tuned.remark(
                        f"tuning: {why}, which is too different to tell what is faster; waiting"
                    )
                told = True
            except AdvisorSlow as why:
                if not told:
                    self._tuned.remark(f"tuning: {why}: others need the processors; waiting")
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
        self._tell(found, f"{found.points} points tried")
        try:
            self._cache().keep(place, found.point, found.seconds)
        except CacheError as why:
            self._warn_of_cache(why)
        return found

    def _tell(self, found: Found, how: str) -> None:
        if found.seconds < found.before:
            less = 100 * (1 - found.seconds / found.before)
            self._tuned.say(
                f"tuning: {found.point}: a step takes {found.seconds:.3g} s instead of "
                f"{found.before:.3g} s, {less:.2g} % less ({how})"
            )
        else:
            self._tuned.remark(f"tuning: nothing is surely faster than {found.point} ({how})")
