"""The thread that tunes, on a job whose steps are made up."""

import json
import os
import pathlib
import sys
import threading
import time
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

import pytest
from inline_snapshot import snapshot

from bytescheduler._native import Metric
from bytescheduler._tuning import tuner as module
from bytescheduler._tuning.advisor import Advice, AdvisorError, AdvisorSlow, Trial
from bytescheduler._tuning.points import Point
from bytescheduler._tuning.search import Found, Moved
from bytescheduler._tuning.starting import start_tuner
from bytescheduler._tuning.tuner import Tuned, Tuner
from bytescheduler.errors import Closed, Error, PeerLost, Timeout

KIB = 1024
START = Point(128 * KIB, 512 * KIB)
BEST = Point(256 * KIB, 1024 * KIB)
LIMIT_S = 60.0


class SteppingWorker:
    """Ends one more step at each look; how long it took depends on the point."""

    num_workers = num_servers = 2

    def __init__(self, seconds: Callable[[Point], float]) -> None:
        self.seconds = seconds
        self.point = START
        self.tuned: List[Point] = []
        self.stays: List[Point] = []  # where it was told to stay before it was told anything else
        self.failure: Optional[BaseException] = None
        self.unfit: Optional[Error] = None  # what it says of every other point
        self.failed: Optional[Error] = None  # what ended the job, or that it was closed
        self.slow_ones = 0  # looks that the engine is too busy for
        self._steps: List[Tuple[int, float]] = []

    def steps(self) -> List[Tuple[int, float]]:
        if self.failure is not None:
            raise self.failure
        if self.slow_ones > 0:
            self.slow_ones -= 1
            raise Timeout("the engine is busy", 4)
        self._steps.append((len(self._steps) + 1, self.seconds(self.point)))
        return self._steps[-64:]

    def measure(self) -> List[Metric]:
        if self.slow_ones > 0:
            self.slow_ones -= 1
            raise Timeout("the engine is busy", 4)
        sizes = {"partition_bytes": self.point.partition, "credit_bytes": self.point.credit}
        return [Metric(name, None, size) for name, size in sizes.items()]

    def status(self) -> Optional[Error]:
        if isinstance(self.failed, Closed):
            raise self.failed
        return self.failed

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        if self.unfit is not None:
            raise self.unfit
        point = Point(partition_bytes, credit_bytes)
        if not self.tuned and point == self.point:
            self.stays.append(point)
            return
        self.point = point
        self.tuned.append(self.point)


class FakeAdvisor:
    """Knows where it is best."""

    opened = 0

    def __init__(self, stopped: Callable[[], bool]) -> None:
        FakeAdvisor.opened += 1

    def start(self) -> None:
        pass

    def ask(self, seen: Sequence[Trial]) -> Advice:
        best = min(range(len(seen)), key=lambda i: seen[i].seconds)
        return Advice((6, 10), 0.0, best)

    def close(self) -> None:
        FakeAdvisor.opened -= 1


def seconds(point: Point) -> float:
    """Return the length of a step; one is enough to know it."""
    return 0.5 if point == BEST else 0.6


class Said:
    """What the tuner said, and warned of."""

    def __init__(self, cache: pathlib.Path) -> None:
        self.cache = cache
        self.lines: List[str] = []
        self.warnings: List[str] = []

    def tuned(self, again: bool) -> Tuned:
        return Tuned(
            by_hand=False,
            again=again,
            root="10.0.0.1",
            cache=str(self.cache),
            declared=lambda: (10, 69_000_000),
            say=self.lines.append,
            remark=self.lines.append,
            warn=self.warnings.append,
            complain=self.warnings.append,
        )

    def wait(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not any(text in line for line in self.lines + self.warnings):
            assert time.monotonic() < deadline, (self.lines, self.warnings)
            time.sleep(0.01)


@pytest.fixture
def said(tmp_path: pathlib.Path) -> Said:
    return Said(tmp_path / "tuning.json")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "Advisor", FakeAdvisor)
    monkeypatch.setattr(module, "_POLL_S", (0.0005, 0.0005))
    yield
    assert FakeAdvisor.opened == 0


def ended(tuner: Tuner) -> None:
    tuner._thread.join(LIMIT_S)
    assert not tuner.running
    tuner.close()


def test_finds_a_faster_point_says_so_and_remembers(said: Said) -> None:
    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    assert said.lines == snapshot(
        ["tuning: 256KiB in 1MiB: a step takes 0.5 s instead of 0.6 s, 17 % less (5 points tried)"]
    )
    assert said.warnings == []
    (row,) = json.loads(said.cache.read_text())["results"].values()
    assert row == {"partition": BEST.partition, "credit": BEST.credit, "step_s": 0.5}


def test_a_tuner_begins_with_the_remembered_result(said: Said) -> None:
    ended(Tuner(SteppingWorker(seconds), said.tuned(again=False)))
    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    assert worker.tuned == [BEST]  # nothing else was tried, and a plain gain is compared once
    assert said.lines[1].endswith(f"17 % less (as {said.cache} has it)")


@pytest.mark.parametrize("again", [False, True])
def test_a_tensor_declared_in_a_search_does_not_hide_its_result_from_next_jobs(
    said: Said, again: bool
) -> None:
    """As do layers that are used later, and rows: each such job declares them after its look."""

    def job(seconds: Callable[[Point], float]) -> Tuple[SteppingWorker, Tuned]:
        worker = SteppingWorker(seconds)

        def declared() -> Tuple[int, int]:
            late = bool(worker.tuned)
            return 10 + late, 69_000_000 + 4 * late

        return worker, said.tuned(again)._replace(declared=declared)

    worker, tuned = job(seconds)
    tuner = Tuner(worker, tuned)
    said.wait("points tried")
    if again:  # what a later search finds is looked for there too
        worker.seconds = lambda point: 1.2 if point == BEST else 1.0
        said.wait("a step takes 1 s instead of 1.2 s")
    tuner.close()
    assert list(json.loads(said.cache.read_text())["results"]) == [
        "10 tensors, 69000000 bytes; 2 workers, 2 servers, 10.0.0.1"
    ]
    tuner = Tuner(*job(lambda point: 3.0))  # which is not what is kept, so it says so
    said.wait(f"{said.cache} has")
    tuner.close()


def test_a_remembered_result_that_no_longer_holds_is_not_believed(said: Said) -> None:
    ended(Tuner(SteppingWorker(seconds), said.tuned(again=False)))
    worker = SteppingWorker(lambda point: 0.6)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == START
    assert "which" in said.lines[1]
    assert "is not faster any more" in said.lines[1]
    assert said.lines[2] == snapshot(
        "tuning: nothing is surely faster than 128KiB in 512KiB (5 points tried)"
    )


def test_searches_again_when_steps_take_another_time(said: Said) -> None:
    worker = SteppingWorker(seconds)
    tuner = Tuner(worker, said.tuned(again=True))
    said.wait("17 % less")
    worker.seconds = lambda point: 1.2 if point == BEST else 1.0
    said.wait("a step takes 1.2 s instead of 0.5 s: searching again")
    said.wait("a step takes 1 s instead of 1.2 s, 17 % less")
    assert worker.point != BEST
    tuner.close()
    assert said.warnings == []


def test_steps_that_differ_too_much_are_waited_for(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    worker = SteppingWorker(lambda point: lengths[len(worker._steps) % len(lengths)])
    tuner = Tuner(worker, said.tuned(again=False))
    said.wait("too far apart to tell which point is faster; waiting")
    assert worker.tuned == []
    worker.seconds = seconds
    ended(tuner)
    assert worker.point == BEST
    assert len(said.lines) == 2  # it did not say so again and again


def test_an_advisor_that_fails_ends_it_where_it_began(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(FakeAdvisor):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            raise AdvisorError("no library: pip install it")

    monkeypatch.setattr(module, "Advisor", Broken)
    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=True)))
    assert worker.point == START
    assert worker.tuned[0] != START
    assert said.warnings == snapshot(
        ["tuning ends: no library: pip install it; the job goes on as it is"]
    )
    assert not said.cache.exists()


def test_whatever_goes_wrong_is_a_warning_and_ends_where_it_began(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(FakeAdvisor):
        def ask(self, seen: Sequence[Trial]) -> Advice:
            raise ValueError("filedescriptor out of range")

    monkeypatch.setattr(module, "Advisor", Odd)
    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=True)))
    assert worker.point == START
    why = "tuning ends: ValueError: filedescriptor out of range; the job goes on as it is"
    assert said.warnings == [why]


def test_an_advisor_that_gets_no_processor_is_asked_again_later(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FakeAdvisor):
        asked = 0

        def ask(self, seen: Sequence[Trial]) -> Advice:
            Slow.asked += 1
            if Slow.asked < 3:
                raise AdvisorSlow("no advice in 120 s")
            return super().ask(seen)

    monkeypatch.setattr(module, "Advisor", Slow)
    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    assert said.lines[0] == snapshot("tuning: no advice in 120 s: the processors are busy; waiting")
    assert len(said.lines) == 2
    assert worker.tuned.count(START) >= 2  # it did not wait where it happened to be


def test_a_start_that_was_found_to_be_best_is_not_searched_for_again(said: Said) -> None:
    ended(Tuner(SteppingWorker(lambda point: 0.6), said.tuned(again=False)))
    worker = SteppingWorker(lambda point: 0.6)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.tuned == []


def test_a_point_that_was_best_on_another_link_is_searched_for_again(said: Said) -> None:
    ended(Tuner(SteppingWorker(lambda point: 0.6), said.tuned(again=False)))
    worker = SteppingWorker(lambda point: 1.0 if point == BEST else 1.2)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    known = f"and {said.cache} has 0.6 s for {START}"
    assert f"tuning: a step takes 1.2 s, {known}: searching again" in said.lines


FAR = Point(1024 * KIB, 4096 * KIB)


def remembers_far(said: Said, step_s: float) -> None:
    """Let the file have what no search finds here."""
    ended(Tuner(SteppingWorker(seconds), said.tuned(again=False)))
    rows = json.loads(said.cache.read_text())
    (row,) = rows["results"].values()
    row.update(partition=FAR.partition, credit=FAR.credit, step_s=step_s)
    said.cache.write_text(json.dumps(rows))


def test_small_partitions_of_a_slow_link_stay(said: Said) -> None:
    worker = SteppingWorker(seconds)
    worker.point = here = Point(8 * KIB, 32 * KIB)
    ended(Tuner(worker, said.tuned(again=True)))
    assert worker.point == here
    assert set(worker.tuned) <= {here}
    assert any("8KiB in 32KiB suits slow links" in line for line in said.lines)
    assert not said.cache.exists()


@pytest.mark.parametrize(("step_s", "most"), [(0.2, 0), (0.5, 6)])
def test_a_remembered_point_that_is_far_slower_now_costs_little(
    said: Said, step_s: float, most: int
) -> None:
    remembers_far(said, step_s)
    worker = SteppingWorker(lambda point: 3.0 if point == FAR else seconds(point))
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    # What gains so much was another link's; else two steps change over and two are looked at, and
    # this worker makes one whenever somebody begins to look.
    slow = [number for number, second in worker._steps if second > 1]
    assert len(slow) == most
    assert (FAR in worker.tuned) == (most > 0)


@pytest.mark.parametrize("when", [14, 18, 22])
def test_a_link_that_becomes_another_in_a_search_is_searched_again(said: Said, when: int) -> None:
    # At first the start is best; then everything takes twice as long, and BEST is.
    def seconds(point: Point) -> float:
        if len(worker._steps) < when:
            return 0.6 if point == START else 0.63
        return 1.0 if point == BEST else 1.2

    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    assert "tuning: a step takes 1.2 s where it took 0.6 s before: searching again" in said.lines
    (row,) = json.loads(said.cache.read_text())["results"].values()
    assert row["step_s"] == 1.0  # nothing of the first link


def test_steps_that_change_in_each_search_are_searched_more_and_more_rarely(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = SteppingWorker(seconds)
    begins: List[int] = []

    def optimise(job: object, start: Point, *_: object) -> Found:
        begins.append(len(worker._steps))
        if len(begins) < 6:
            raise Moved(start, 1.0, 2.0)
        return Found(start, 2.0, 2.0, 1)

    monkeypatch.setattr(module, "optimise", optimise)
    ended(Tuner(worker, said.tuned(again=False)))
    rests = [second - first for first, second in zip(begins, begins[1:])]
    assert [round(rest, -1) for rest in rests] == [0, 50, 100, 200, 400]


def test_a_file_of_another_cluster_is_said_and_harms_nothing(said: Said) -> None:
    ended(Tuner(SteppingWorker(lambda point: 0.6), said.tuned(again=False)))
    here = [line for line in said.lines if "on another cluster" in line]
    ended(
        Tuner(SteppingWorker(lambda point: 0.6), said.tuned(again=False)._replace(root="10.9.9.9"))
    )
    there = [line for line in said.lines if "on another cluster" in line]
    assert here == []
    assert len(there) == 1
    assert str(said.cache) in there[0]
    assert there[0].endswith("10.9.9.9): searching")


@pytest.mark.parametrize(("third", "waits"), [(0.6, True), (0.9, False)])
def test_a_step_time_without_a_result_is_not_searched_for_again_soon(
    said: Said, third: float, waits: bool
) -> None:
    ends: List[int] = []  # the steps before each search that found nothing was over
    begins: List[int] = []  # and before each that began because steps took another time

    def seconds(point: Point) -> float:
        for text, at in (("nothing is surely faster", ends), ("searching again", begins)):
            if sum(text in line for line in said.lines) > len(at):
                at.append(len(worker._steps))
        return (0.6, 0.75, third)[min(len(ends), 2)]

    worker = SteppingWorker(seconds)
    tuner = Tuner(worker, said.tuned(again=True))
    deadline = time.monotonic() + LIMIT_S
    while len(begins) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    tuner.close()
    assert begins[0] - ends[0] < 50
    assert (begins[1] - ends[1] >= 200) == waits


def test_closing_does_not_wait_for_a_file_system_that_hangs(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 0.2)
    os.mkfifo(said.cache)  # nobody writes to it: to open it takes for ever
    tuner = Tuner(SteppingWorker(seconds), said.tuned(again=True))
    deadline = time.monotonic() + LIMIT_S
    while not waits_in_open(tuner):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    tuner.close()
    assert not tuner.running
    os.close(os.open(said.cache, os.O_RDWR))  # let it go
    tuner._thread.join(LIMIT_S)
    assert not tuner._thread.is_alive()


def waits_in_open(tuner: Tuner) -> bool:
    frame = sys._current_frames().get(tuner._thread.ident or 0)
    return frame is not None and "open" in frame.f_code.co_name


def test_closing_says_why(said: Said) -> None:
    tuner = Tuner(SteppingWorker(seconds), said.tuned(again=True))
    tuner.close("retune was called")
    assert said.lines[-1] == "tuning ends: retune was called"


@pytest.mark.parametrize(
    "failure",
    [PeerLost("server 1 was lost", 4), Timeout("push key=7: no response", 2), Closed("closed", 3)],
)
def test_a_job_that_fails_says_so_itself(said: Said, failure: Error) -> None:
    worker = SteppingWorker(seconds)
    worker.unfit = worker.failed = failure
    ended(Tuner(worker, said.tuned(again=True)))
    assert said.lines + said.warnings == []


def test_tuning_that_was_asked_for_says_why_it_ends_though_the_job_goes_on(said: Said) -> None:
    worker = SteppingWorker(seconds)
    worker.unfit = Timeout("the engine did not answer in 1000 ms", 2)
    ended(Tuner(worker, said.tuned(again=True)))
    why = "tuning ends: the engine did not answer in 1000 ms; the job goes on as it is"
    assert said.warnings == [why]


def test_an_engine_that_is_busy_is_asked_again(said: Said) -> None:
    worker = SteppingWorker(seconds)
    worker.slow_ones = 5
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST


def test_a_file_that_is_none_is_a_warning_and_stays(said: Said) -> None:
    said.cache.write_text("my thesis")
    worker = SteppingWorker(seconds)
    ended(Tuner(worker, said.tuned(again=False)))
    assert worker.point == BEST
    assert [line.split(";")[0] for line in said.warnings] == [
        f"tuning: {said.cache} is not a file of tuning results"
    ]
    assert said.cache.read_text() == "my thesis"


def test_closing_ends_it_wherever_it_is(said: Said) -> None:
    worker = SteppingWorker(seconds)
    worker.steps = lambda: []  # type: ignore[method-assign]  # nobody trains
    tuner = Tuner(worker, said.tuned(again=True))
    assert tuner.running
    tuner.close()
    assert not tuner.running
    assert "bs-tuner" not in [thread.name for thread in threading.enumerate()]


def test_a_busy_engine_is_asked_again_where_it_is(said: Said) -> None:
    worker = SteppingWorker(seconds)
    worker.point = Point(64 * KIB, 256 * KIB)
    worker.slow_ones = 2
    job = module._Running(worker, said.tuned(again=False), threading.Event())
    assert job.begin() == worker.point
    assert worker.stays == [worker.point]  # or the engine might choose another
    assert worker.slow_ones == 0


def test_short_steps_are_looked_at_for_long_enough(said: Said) -> None:
    """Of steps of a millisecond three say nothing."""
    worker = SteppingWorker(lambda point: 0.001)
    job = module._Running(worker, said.tuned(again=False), threading.Event())
    job.begin()
    assert len(job.measure(START, 3, None)) == 60
    worker.seconds = lambda point: 0.1
    assert len(job.measure(START, 2, None)) == 3
    worker.seconds = lambda point: 5.0
    assert len(job.measure(START, 2, None)) == 2


def test_steps_of_a_change_do_not_count(said: Said) -> None:
    worker = SteppingWorker(lambda point: len(worker._steps) + 1.0)  # its own number
    job = module._Running(worker, said.tuned(again=False), threading.Event())
    job.begin()
    first = job.measure(START, 2, None)
    assert first[1] == first[0] + 1
    again = job.measure(BEST, 1, None)
    assert again[0] >= first[1] + 3  # one under way, one in which tensors change over
    assert worker.point == BEST


def test_two_slow_steps_are_enough_and_one_is_not(said: Said) -> None:
    slow = iter([9.0, 1.0, 1.0, 9.0, 1.0, 9.0, 1.0, 1.0, 1.0])
    worker = SteppingWorker(lambda point: next(slow))
    job = module._Running(worker, said.tuned(again=False), threading.Event())
    job.begin()
    worker.steps()  # what ended before
    assert job.measure(START, 5, 2.0) == [1.0, 9.0, 1.0, 9.0]


@pytest.mark.parametrize(
    ("name", "value"), [("TUNING", "off"), ("PARTITION", "48K"), ("CREDIT", "1536KiB")]
)
def test_settings_made_by_hand_are_not_tuned(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv("BYTESCHEDULER_TUNING", raising=False)
    monkeypatch.setenv(f"BYTESCHEDULER_{name}", value)
    worker = SteppingWorker(seconds)
    assert start_tuner(worker, lambda: (0, 0)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [False, True])
def test_a_missing_library_is_told_if_tuning_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], asked: bool
) -> None:
    monkeypatch.delenv("BYTESCHEDULER_TUNING", raising=False)
    if asked:
        monkeypatch.setenv("BYTESCHEDULER_TUNING", "on")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    worker = SteppingWorker(seconds)
    assert start_tuner(worker, lambda: (0, 0)) is None  # type: ignore[arg-type]
    line = "bytescheduler: tuning ends: there is no bayes_opt: pip install bayesian-optimization=="
    assert (line in capfd.readouterr().err) is asked


@pytest.mark.parametrize(("faster", "level"), [(False, "info"), (False, "debug"), (True, "info")])
def test_by_default_tuning_runs_and_tells_its_results_only(
    said: Said,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    faster: bool,
    level: str,
) -> None:
    monkeypatch.delenv("BYTESCHEDULER_TUNING", raising=False)
    monkeypatch.setenv("BYTESCHEDULER_TUNING_CACHE", str(said.cache))
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", level)
    worker = SteppingWorker(seconds if faster else lambda point: 0.6)
    tuner = start_tuner(worker, lambda: (10, 69_000_000))  # type: ignore[arg-type]
    assert tuner is not None
    deadline = time.monotonic() + LIMIT_S
    while not said.cache.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    tuner.close()
    err = capfd.readouterr().err
    assert ("bytescheduler: tuning: 256KiB in 1MiB: a step takes 0.5 s" in err) is faster
    assert ("nothing is surely faster" in err) is (level == "debug")


def test_by_default_a_file_that_holds_no_results_is_told(
    said: Said, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BYTESCHEDULER_TUNING", raising=False)
    monkeypatch.setenv("BYTESCHEDULER_TUNING_CACHE", str(said.cache))
    said.cache.write_text("my thesis")
    tuner = start_tuner(SteppingWorker(seconds), lambda: (10, 69_000_000))  # type: ignore[arg-type]
    assert tuner is not None
    err = ""
    deadline = time.monotonic() + LIMIT_S
    while "a step takes 0.5 s" not in err:
        assert time.monotonic() < deadline, err
        time.sleep(0.01)
        err += capfd.readouterr().err
    tuner.close()
    err += capfd.readouterr().err
    assert err.count(str(said.cache)) == 1
    assert said.cache.read_text() == "my thesis"


def test_by_default_results_of_another_cluster_are_told(
    said: Said, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended(Tuner(SteppingWorker(seconds), said.tuned(again=False)))
    monkeypatch.setenv("BYTESCHEDULER_TUNING_CACHE", str(said.cache))
    monkeypatch.delenv("BYTESCHEDULER_TUNING", raising=False)
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "10.9.9.9")
    tuner = start_tuner(SteppingWorker(seconds), lambda: (10, 69_000_000))  # type: ignore[arg-type]
    assert tuner is not None
    err = ""
    deadline = time.monotonic() + LIMIT_S
    while "on another cluster" not in err:
        assert time.monotonic() < deadline, err
        time.sleep(0.01)
        err += capfd.readouterr().err
    tuner.close()


@pytest.mark.parametrize(("level", "said_so"), [("info", True), ("warning", False)])
def test_tuning_begins_at_the_engines_point_and_settings_choose_its_messages(
    said: Said,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    level: str,
    said_so: bool,
) -> None:
    for name, value in (
        ("TUNING", "once"),
        ("TUNING_CACHE", str(said.cache)),
        ("PARTITION", "48K"),
        ("CREDIT", "1536KiB"),
        ("LOG_LEVEL", level),
    ):
        monkeypatch.setenv(f"BYTESCHEDULER_{name}", value)
    worker = SteppingWorker(lambda point: 0.6)
    worker.point = Point(48 * KIB, 1536 * KIB)
    tuner = start_tuner(worker, lambda: (3, 12_000_000))  # type: ignore[arg-type]
    assert tuner is not None
    ended(tuner)
    assert worker.point == Point(48 * KIB, 1536 * KIB)
    err = capfd.readouterr().err
    nothing = (
        "bytescheduler: tuning: nothing is surely faster than 48KiB in 1.5MiB (5 points tried)"
    )
    assert (nothing in err) is said_so
    (place,) = json.loads(said.cache.read_text())["results"]
    assert place.startswith("3 tensors, 12000000 bytes; 2 workers, 2 servers, ")
