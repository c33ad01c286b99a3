"""A search among points of which we know how fast they are, with noise and pauses on top."""

import math
import random
import statistics
import warnings
from typing import Callable, List, Optional, Sequence

import pytest

from bytescheduler._settings import Settings
from bytescheduler._tuning import search
from bytescheduler._tuning.advisor import Advice, AdvisorError, Trial, advise
from bytescheduler._tuning.points import (
    CREDITS,
    DEFAULT,
    PARTITIONS,
    Point,
    by_formula,
    nearest,
    on_rungs,
    size_text,
)

KIB = 1024
Landscape = Callable[[Point], float]


def bowl(partition: float, credit: float, steep: float = 1.0) -> Landscape:
    """Return step times that are least near a point, and less the nearer one is by ratio."""

    def seconds(point: Point) -> float:
        apart = math.log2(point.partition / partition), math.log2(point.credit / credit)
        return 0.6 * (1 + steep * (0.012 * apart[0] ** 2 + 0.01 * apart[1] ** 2))

    return seconds


def least(seconds: Landscape) -> float:
    return min(seconds(Point(p, c)) for p in PARTITIONS for c in CREDITS if p <= c)


class LandscapeJob:
    """Steps take what a landscape says, more or less; a change costs two steps, as a real one."""

    num_workers = num_servers = 2
    by_hand = True

    def __init__(self, seconds: Landscape, noise: float = 0.01, pauses: float = 0.0) -> None:
        self.seconds = seconds
        self.point = DEFAULT
        self.steps = 0
        self.tried: List[Point] = []
        self._chance = random.Random(1)
        self._noise = noise
        self._pauses = pauses

    def model_bytes(self) -> float:
        return 69e6

    def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
        if point != self.point:
            self.steps += 2
        self.point = point
        self.tried.append(point)
        taken: List[float] = []
        slow = 0
        while len(taken) < samples:
            self.steps += 1
            second = self.seconds(point) * (1 + abs(self._chance.gauss(0, self._noise)))
            if self._chance.random() < self._pauses:
                second += 5.0
            taken.append(second)
            slow += bound_s is not None and second > bound_s
            if slow == 2:
                break
        return taken


class Ready:
    """An advisor that is always ready, and counts how often it was told to be."""

    started = 0

    def start(self) -> None:
        self.started += 1


class Library(Ready):
    """The library in this process, which says what it thinks of our numbers in warnings."""

    def ask(self, seen: Sequence[Trial]) -> Advice:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return advise(seen)


@pytest.fixture(scope="module")
def library() -> Library:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import bayes_opt  # noqa: F401
    return Library()


def checked_search(library: Library, job: LandscapeJob) -> search.Found:
    """Search from the default, and check that it finds nearly the fastest and harms no step."""
    found = search.optimise(job, DEFAULT, library)
    assert job.point == found.point
    assert job.seconds(found.point) <= 1.03 * least(job.seconds)
    assert job.steps <= 100
    assert max(map(job.seconds, job.tried)) <= 1.3 * job.seconds(DEFAULT)
    return found


@pytest.mark.parametrize(
    ("partition", "credit", "steep"),
    [pytest.param(300, 3000, 6, marks=pytest.mark.nightly), (1000, 9000, 1)],
)
def test_a_search_finds_nearly_the_fastest_point_and_harms_no_step(
    library: Library, partition: int, credit: int, steep: float
) -> None:
    checked_search(library, LandscapeJob(bowl(partition * KIB, credit * KIB, steep)))


def test_finds_it_again_where_the_link_has_changed(library: Library) -> None:
    job = LandscapeJob(bowl(48 * KIB, 200 * KIB, 6))
    found = checked_search(library, job)
    slower = bowl(150 * KIB, 1000 * KIB, 6)
    job.seconds = lambda point: 2 * slower(point)
    job.steps = 0
    again = search.optimise(job, found.point, library, search.LATER_SEARCH)
    assert slower(again.point) <= 1.03 * least(slower)
    assert job.steps <= 100


def test_pauses_are_no_part_of_a_step(library: Library) -> None:
    seconds = bowl(512 * KIB, 4096 * KIB)
    job = LandscapeJob(seconds, pauses=0.05)
    found = search.optimise(job, DEFAULT, library)
    assert seconds(found.point) <= 1.03 * least(seconds)


def test_stays_where_it_is_when_nothing_matters(library: Library) -> None:
    job = LandscapeJob(lambda point: 0.6)
    found = search.optimise(job, DEFAULT, library)
    assert found.point == job.point == DEFAULT


class Hopeless(Ready):
    """An advisor that sees nothing to gain."""

    def ask(self, seen: Sequence[Trial]) -> Advice:
        return Advice((5, 9), 0.0, 0)


def test_believes_the_advisor_that_nothing_is_to_be_had() -> None:
    job = LandscapeJob(lambda point: 0.6)
    advisor = Hopeless()
    assert search.optimise(job, DEFAULT, advisor).points == 5  # three, and two that confirm it
    assert job.point == DEFAULT
    assert advisor.started == 1


def test_a_point_that_looked_faster_by_chance_is_given_up() -> None:
    class Wrong(Ready):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            return Advice((7, 12), 0.0, len(seen) - 1)

    job = LandscapeJob(bowl(128 * KIB, 512 * KIB))
    assert search.optimise(job, DEFAULT, Wrong()).point == DEFAULT
    assert job.point == DEFAULT


@pytest.mark.parametrize(("slower", "times"), [(1.5, 1), (1.1, 1), (1.015, 2)])
def test_a_start_that_was_plainly_slower_is_looked_at_again_only_briefly(
    slower: float, times: int
) -> None:
    class Knowing(Ready):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            return Advice((7, 12), 0.0, 1)

    start = Point(2048 * KIB, 8192 * KIB)
    job = LandscapeJob(lambda point: 0.6 * slower if point == start else 0.6)
    job.point = start
    found = search.optimise(job, start, Knowing())
    assert found.point == job.point == DEFAULT
    assert job.tried[1:].count(start) == times
    assert found.before == pytest.approx(0.6 * slower, rel=0.1)


def changing(at: int, before: Landscape, after: Landscape) -> LandscapeJob:
    """Return a job whose link becomes another with a step."""
    job = LandscapeJob(lambda point: (before if job.steps < at else after)(point))
    return job


@pytest.mark.parametrize("at", [8, 12, pytest.param(16, marks=pytest.mark.nightly), 20, 24, 28])
def test_a_link_that_changes_in_a_search_is_told(library: Library, at: int) -> None:
    slower = bowl(32 * KIB, 64 * KIB, 1.5)
    job = changing(at, bowl(128 * KIB, 512 * KIB), lambda point: 2 * slower(point))
    with pytest.raises(search.Moved, match=r"a step takes 1\.\d+ s where it took 0\.6") as moved:
        search.optimise(job, DEFAULT, library)
    assert job.point == moved.value.point
    assert slower(job.point) <= slower(DEFAULT)


def test_first_steps_that_are_slow_for_another_reason_are_no_gain(library: Library) -> None:
    fast = bowl(128 * KIB, 512 * KIB, 3)
    job = changing(14, lambda point: 1.5 * fast(point), fast)
    with pytest.raises(search.Moved):
        search.optimise(job, DEFAULT, library)


def test_a_comparison_with_a_far_slower_point_ends_after_two_steps() -> None:
    far = Point(4096 * KIB, 16384 * KIB)
    job = LandscapeJob(lambda point: 3.0 if point == far else 0.6)
    found = search.settle(job, DEFAULT, far, search.FIRST_SEARCH)
    assert (found.point, job.point) == (DEFAULT, DEFAULT)
    assert job.tried.count(far) == 1


def test_a_point_fast_by_chance_is_compared_with_a_far_slower_start() -> None:
    class Lucky(LandscapeJob):
        def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
            return [
                0.3 if len(self.tried) == 5 else s for s in super().measure(point, samples, bound_s)
            ]

    class Wrong(Ready):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            return Advice((7, 12), 0.0, len(seen) - 1)

    job = Lucky(bowl(128 * KIB, 512 * KIB))
    assert search.optimise(job, DEFAULT, Wrong()).point == DEFAULT
    assert job.tried[-1] == DEFAULT


def test_a_point_that_is_far_slower_is_left_after_two_steps() -> None:
    class Bold(Ready):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            return Advice((0, 0), 0.5, 0)

    class Counting(LandscapeJob):
        def measure(self, point: Point, samples: int, bound_s: Optional[float]) -> List[float]:
            taken = super().measure(point, samples, bound_s)
            assert len(taken) == (2 if point == on_rungs((0, 0)) else samples)
            return taken

    job = Counting(lambda point: 1.0 if point.partition < 64 * KIB else 0.6)
    assert search.optimise(job, DEFAULT, Bold()).point == DEFAULT


def test_steps_that_differ_too_much_are_told() -> None:
    class Nobody(Ready):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            raise AssertionError

    job = LandscapeJob(lambda point: 0.6, noise=3.0)
    nobody = Nobody()
    with pytest.raises(search.Unsteady, match=r"steps take 0\.\d+ to \d"):
        search.optimise(job, DEFAULT, nobody)
    assert job.point == DEFAULT
    assert nobody.started == 0  # a job of few steps has no second process


def test_more_noise_takes_more_steps() -> None:
    jobs = [LandscapeJob(lambda point: 0.6, noise) for noise in (0.005, 0.1)]
    quiet, loud = (search.optimise(job, DEFAULT, Hopeless()) and job for job in jobs)
    assert len(loud.tried) == len(quiet.tried)
    assert loud.steps > quiet.steps


def test_an_advisor_that_fails_is_no_result() -> None:
    class Broken(Ready):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            raise AdvisorError("it is broken")

    with pytest.raises(AdvisorError, match="it is broken"):
        search.optimise(LandscapeJob(lambda point: 0.6), DEFAULT, Broken())


def test_where_it_begins_may_be_anywhere() -> None:
    start = Point(5000, 70_000)  # below the ladder
    job = LandscapeJob(bowl(512 * KIB, 2048 * KIB))
    job.point = start
    search.optimise(job, start, Hopeless())
    assert job.tried[0] == start  # itself, not the rung next to it
    assert job.point == start


def test_standard_error_of_a_median() -> None:
    chance = random.Random(1)
    medians = [statistics.median(chance.gauss(1, 0.1) for _ in range(25)) for _ in range(400)]
    guessed = search.noise_of([chance.gauss(1, 0.1) for _ in range(25)])
    assert guessed == pytest.approx(statistics.stdev(medians), rel=0.5)


def test_the_formula_grows_with_the_rate() -> None:
    slow = by_formula(69e6, 6.0, 2, 2)
    fast = by_formula(69e6, 0.06, 2, 2)
    assert slow.partition == 64 * KIB  # sqrt(69e6 * 25e-6 * 11.5e6 / 4) = 70 KB
    assert fast.partition == 768 * KIB  # ten times that
    assert slow.credit == 4 * slow.partition
    assert by_formula(4, 100.0, 2, 2) == Point(PARTITIONS[0], 4 * PARTITIONS[0])


def test_rungs_there_and_back() -> None:
    for x in range(len(PARTITIONS)):
        for y in range(len(CREDITS)):
            assert nearest(on_rungs((x, y))) == (x, y)
    assert nearest(Point(130 * KIB, 1 << 40)) == (4, len(CREDITS) - 1)


def test_sizes_are_written_as_settings_are() -> None:
    assert str(Point(128 * KIB, 1536 * KIB)) == "128KiB in 1.5MiB"
    assert size_text(100) == "100"


def test_theory_leads_no_further_than_a_few_rungs() -> None:
    class Far(LandscapeJob):
        def model_bytes(self) -> float:
            return 1e12

    job = Far(lambda point: 0.6)
    search.optimise(job, DEFAULT, Hopeless())
    x, y = nearest(job.tried[1])
    assert (x, y) == (4 + search._MAX_LEAP_RUNGS, 8 + search._MAX_LEAP_RUNGS)


@pytest.mark.parametrize(
    ("start", "far"),
    [
        (Point(2048 * KIB, 8192 * KIB), True),
        (Point(32 * KIB, 64 * KIB), True),
        (Point(256 * KIB, 1024 * KIB), False),
    ],
)
def test_from_far_away_the_default_is_looked_at_first(start: Point, far: bool) -> None:
    job = LandscapeJob(lambda point: 0.6)
    job.point = start
    search.optimise(job, start, Hopeless())
    assert job.tried[0] == start
    assert (job.tried[1] == DEFAULT) == far


def test_a_search_begins_at_the_engines_choice_and_not_at_the_default() -> None:
    job = LandscapeJob(lambda point: 0.6)
    job.point = chosen = Point(32 * KIB, 64 * KIB)
    job.by_hand = False
    search.optimise(job, chosen, Hopeless())
    assert job.tried[0] == chosen
    assert DEFAULT not in job.tried


def test_the_default_is_that_of_the_settings() -> None:
    assert (DEFAULT.partition, DEFAULT.credit) == Settings.of({}).sizes
