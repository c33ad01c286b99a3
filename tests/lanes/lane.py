"""Runs a lane of steps, and prints their times and what did not run.

``lane.py NAME`` runs the lane of that name.  Each step is a target of the Makefile.  Its output
goes to the terminal, or, where steps run side by side, to ``build/steps/STEP.log``, which is
printed if the step fails.  The lane ends at the first row with a failure.  ``build/times.json``
has the seconds of each step; ``build/results`` has what the test programs wrote, as JUnit XML.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time
from typing import Dict, List, NamedTuple, Optional

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from results import Results, read_results

# Lane -> rows.  The steps of a row run side by side; the next row begins when all have ended.
LANES: "Dict[str, List[List[str]]]" = {
    "quick": [["style"], ["release-build"], ["python-units", "release"]],
    "test": [
        ["style"],
        ["asan-build"],
        ["asan"],
        ["tsan-build"],
        ["tsan"],
        ["release-build"],
        ["release"],
        ["python"],
        ["pythons"],
        ["lint", "fuzz"],
        ["python-serial"],
    ],
    "nightly": [
        ["nightly-release"],
        ["nightly-gcc"],
        ["nightly-pythons"],
        ["nightly-wheels"],
        ["nightly-lint"],
        ["nightly-launchers"],
        ["nightly-rdma"],
        ["nightly-docs"],
        ["nightly-fuzz"],
    ],
}


class Step(NamedTuple):
    """How a step went.

    Attributes
    ----------
    name : str
        The target of the Makefile.
    seconds, cpu_seconds : float
        Wall clock from the step's begin to its end; processor time of all its processes (only
        where it ran alone, else None).
    status : int
        The exit status of make.
    """

    name: str
    seconds: float
    cpu_seconds: Optional[float]
    status: int


def cpu_of_children() -> float:
    """Return the processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_step(name: str, log: Optional[pathlib.Path]) -> Step:
    """Run a step to its end; its output goes to `log`, or to the terminal."""
    print(f"--- {name}", flush=True)
    make = [os.environ.get("MAKE", "make"), "--no-print-directory", name]
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        out = None if log is None else stack.enter_context(log.open("wb"))
        done = subprocess.run(make, stdout=out, stderr=out and subprocess.STDOUT, check=False)
    return Step(name, time.monotonic() - begin, None, done.returncode)


def run_row(names: "List[str]", build: pathlib.Path) -> "List[Step]":
    """Run the steps of a row and return how they went, in the order given."""
    folder = build / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    cpu = cpu_of_children()
    # The first step has the terminal; the others would interrupt its lines.
    logs = [None, *(folder / f"{name}.log" for name in names[1:])]
    with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
        steps = list(threads.map(run_step, names, logs))
    for step, log in zip(steps, logs):
        if step.status != 0 and log is not None:
            print(f"--- {step.name} failed:\n{log.read_text(errors='replace')}")
    if len(steps) > 1:
        return steps
    return [steps[0]._replace(cpu_seconds=cpu_of_children() - cpu)]


def write_times(lane: str, steps: "List[Step]", total: float, path: pathlib.Path) -> None:
    """Write what the lane took as JSON."""
    rows = [step._asdict() for step in steps]
    path.write_text(json.dumps({"lane": lane, "seconds": total, "steps": rows}, indent=2) + "\n")


def report(lane: str, steps: "List[Step]", total: float, results: Results) -> str:
    """Return what is printed at the end: times, what did not run, counts."""
    lines = ["", f"{'step':<18}{'seconds':>8}{'cpu':>8}"]
    for step in steps:
        cpu = "" if step.cpu_seconds is None else f"{step.cpu_seconds:.0f}"
        failed = "" if step.status == 0 else "  FAILED"
        lines.append(f"{step.name:<18}{step.seconds:>8.0f}{cpu:>8}{failed}")
    lines.append(f"{'make ' + lane:<18}{total:>8.0f}")
    if results.skipped:
        lines += ["", "Not run here:"]
        for reason, tests in sorted(results.skipped.items()):
            shown = tests[0] if len(tests) == 1 else f"{tests[0]} and {len(tests) - 1} more"
            lines.append(f"  {reason}: {shown}")
    # A failed step without a failed test (a build, a linter) counts as one.
    failed = max(results.failed, sum(step.status != 0 for step in steps))
    lines += ["", f"{results.passed} passed, {failed} failed, {results.num_skipped} skipped"]
    return "\n".join(lines)


def main() -> int:
    """Run the lane named on the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lane", choices=sorted(LANES))
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    options = parser.parse_args()
    results = options.build / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    begin, steps = time.monotonic(), []
    for row in LANES[options.lane]:
        steps += run_row(row, options.build)
        write_times(options.lane, steps, time.monotonic() - begin, options.build / "times.json")
        if any(step.status != 0 for step in steps):
            break
    total = time.monotonic() - begin
    print(report(options.lane, steps, total, read_results(results)))
    return 1 if any(step.status != 0 for step in steps) else 0


if __name__ == "__main__":
    sys.exit(main())
