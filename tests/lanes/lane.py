"""Runs a lane, a graph of steps, and prints their times and what did not run.

``lane.py NAME`` runs the lane of that name.  Each step is a target of the Makefile.  Steps run side
by side; the output of each goes to ``build/steps/STEP.log``.  Its last lines are printed when the
step ends, and all of it if the step fails.  A failure ends the lane: no step starts any more, and
those that run are interrupted.  ``build/times.json`` has the seconds of each step and of each
folder of tests; ``build/results`` has what the test programs wrote, as JUnit XML.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from results import Results, read_results
from rooms import seconds_by_room
from steps import LANES, Step, all_needs, check, startable
from times import Times, kept_times

# How many lines of its log a step that passed prints: pytest and ctest end with their counts.
LAST_LINES = 3
# How long an interrupted step has until it is killed, in seconds: tests end their processes.
GRACE = 30.0
# How often the lane looks for steps that have ended, in seconds.
TICK = 0.05
NICENESS = 10


class Outcome(NamedTuple):
    """How a step went.

    Attributes
    ----------
    name : str
        The target of the Makefile.
    seconds, cpu_seconds : float
        Wall clock from the step's begin to its end; processor time of all its processes.
    status : int
        The exit status of make, or minus the signal that ended it.
    interrupted : bool
        The lane ended the step, since another had failed.
    """

    name: str
    seconds: float
    cpu_seconds: float
    status: int
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        """Whether the step itself failed."""
        return self.status != 0 and not self.interrupted


class Running:
    """A step that runs, in a process group of its own."""

    def __init__(self, step: Step, needs: "List[str]", log: pathlib.Path) -> None:
        """Start it.  Make takes `needs` as made: what the lane has built is not built again."""
        made = [word for need in ("setup", *needs) for word in ("-o", need)]
        make = [os.environ.get("MAKE", "make"), "--no-print-directory", *made, step.name]
        nice = ["nice", "-n", str(NICENESS)] if step.background else []
        self.step = step
        self.log = log
        self._begin = time.monotonic()
        self._interrupted = False
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*nice, *make],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def poll(self) -> Optional[Outcome]:
        """Return how it went, once it has ended."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._process.returncode = code  # it was waited for here, and not by `subprocess`
        seconds = time.monotonic() - self._begin
        cpu_seconds = usage.ru_utime + usage.ru_stime
        return Outcome(self.step.name, seconds, cpu_seconds, code, self._interrupted)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Send a signal to all its processes, Ctrl-C's at first."""
        self._interrupted = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def tell_end(run: Running, outcome: Outcome) -> None:
    """Print how a step went, with the end of its log, or all of it if the step failed."""
    lines = run.log.read_text(errors="replace").splitlines()
    if outcome.failed:
        print(f"--- {outcome.name} failed after {outcome.seconds:.0f} s:", *lines, sep="\n")
    elif outcome.interrupted:
        print(f"--- {outcome.name} was interrupted after {outcome.seconds:.0f} s")
    else:
        print(f"--- {outcome.name} took {outcome.seconds:.0f} s", *lines[-LAST_LINES:], sep="\n")
    sys.stdout.flush()


def wait_for_any(running: "List[Running]") -> "List[Outcome]":
    """Wait until steps have ended, take them from the list, and return how they went."""
    while True:
        outcomes = []
        for run in list(running):
            outcome = run.poll()
            if outcome is not None:
                running.remove(run)
                tell_end(run, outcome)
                outcomes.append(outcome)
        if outcomes or not running:
            return outcomes
        time.sleep(TICK)


def end_all(running: "List[Running]") -> "List[Outcome]":
    """Interrupt all steps, kill those that stay, and return how they went."""
    for run in running:
        run.interrupt()
    deadline = time.monotonic() + GRACE
    outcomes = []
    while running:
        if time.monotonic() > deadline:
            for run in running:
                run.interrupt(signal.SIGKILL)
        for run in list(running):
            outcome = run.poll()
            if outcome is not None:
                running.remove(run)
                tell_end(run, outcome)
                outcomes.append(outcome)
        time.sleep(TICK)
    return outcomes


def run_steps(steps: Sequence[Step], folder: pathlib.Path) -> "List[Outcome]":
    """Run a lane's steps, with their logs in `folder`; return how they went, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: List[Outcome] = []
    waiting = list(steps)
    running: List[Running] = []
    try:
        while not any(outcome.failed for outcome in outcomes):
            done = [outcome.name for outcome in outcomes]
            for step in startable(waiting, [run.step for run in running], done):
                waiting.remove(step)
                log = folder / f"{step.name}.log"
                print(f"--- {step.name} begins: {log}", flush=True)
                running.append(Running(step, all_needs(step.name, steps), log))
            if not running:
                break
            outcomes += wait_for_any(running)
    finally:
        outcomes += end_all(running)
    order = [step.name for step in steps]
    return sorted(outcomes, key=lambda outcome: order.index(outcome.name))


def column(seconds: Optional[float]) -> str:
    """Return a number of seconds as a column of the report, empty where there is none."""
    return f"{'' if seconds is None else f'{seconds:.0f}':>8}"


def report_times(outcomes: "List[Outcome]", times: Times, kept: Optional[Times]) -> "List[str]":
    """Return two tables of seconds, by step and by room, beside those of the run that was kept."""
    kept_steps: Dict[str, Dict[str, float]] = {} if kept is None else kept.steps
    kept_rooms: Dict[str, float] = {} if kept is None else kept.rooms
    lines = ["", f"{'step':<34}{'seconds':>8}{'cpu':>8}{'kept':>8}{'cpu':>8}"]
    for outcome in outcomes:
        row = kept_steps.get(outcome.name, {})
        end = "  FAILED" if outcome.failed else "  interrupted" if outcome.interrupted else ""
        seconds = (outcome.seconds, outcome.cpu_seconds, row.get("seconds"), row.get("cpu_seconds"))
        lines.append((f"{outcome.name:<34}" + "".join(map(column, seconds)) + end).rstrip())
    cpu = sum(outcome.cpu_seconds for outcome in outcomes)
    totals = [times.seconds, cpu]
    if kept is not None:
        totals += [kept.seconds, sum(row["cpu_seconds"] for row in kept.steps.values())]
    lines.append(f"{'make ' + times.lane:<34}" + "".join(map(column, totals)))
    lines += ["", f"{'room':<34}{'seconds':>8}{'kept':>8}"]
    for room in sorted(
        {*times.rooms, *kept_rooms}, key=lambda room: (-times.rooms.get(room, 0), room)
    ):
        seconds = (times.rooms.get(room), kept_rooms.get(room))
        lines.append((f"{room:<34}" + "".join(map(column, seconds))).rstrip())
    return lines


def report_tests(outcomes: "List[Outcome]", results: Results) -> "List[str]":
    """Return the tests that did not run, with the reason, and the counts alone on the last line."""
    lines = []
    if results.skipped:
        lines += ["", "Not run here:"]
        for reason, tests in sorted(results.skipped.items()):
            shown = tests[0] if len(tests) == 1 else f"{tests[0]} and {len(tests) - 1} more"
            lines.append(f"  {reason}: {shown}")
    # A failed step without a failed test (a build, a linter) counts as one.
    failed = max(results.failed, sum(outcome.failed for outcome in outcomes))
    return [*lines, "", f"{results.passed} passed, {failed} failed, {results.num_skipped} skipped"]


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """End the steps too when the lane itself is ended: they are in process groups of their own."""
    names = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(name, signal.default_int_handler) for name in names]
    try:
        yield
    finally:
        for name, handler in zip(names, before):
            signal.signal(name, handler)


def main() -> int:
    """Run the lane named on the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lane", choices=sorted(LANES))
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options = parser.parse_args()
    steps = LANES[options.lane]
    check(steps)
    results = options.build / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    begin = time.monotonic()
    try:
        with signals_interrupt():
            outcomes = run_steps(steps, options.build / "steps")
    except KeyboardInterrupt:
        return 130
    passed = len(outcomes) == len(steps) and not any(outcome.status for outcome in outcomes)
    times = Times(
        lane=options.lane,
        passed=passed,
        processors=os.cpu_count() or 1,
        seconds=time.monotonic() - begin,
        steps={
            outcome.name: {"seconds": outcome.seconds, "cpu_seconds": outcome.cpu_seconds}
            for outcome in outcomes
        },
        rooms=seconds_by_room(results),
    )
    times.write(options.build / "times.json")
    lines = report_times(outcomes, times, kept_times(options.lane))
    print("\n".join([*lines, *report_tests(outcomes, read_results(results))]))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
