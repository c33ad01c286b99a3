"""A check that this machine was left alone during a measurement.

The hypervisor may take the processors of a virtual machine away for others; the kernel counts that
time (`steal` in proc(5)). A run that lost much of it is slower for no reason of its own.
"""

import argparse
import pathlib
import sys
from typing import Callable, List, NamedTuple, Tuple, TypeVar

STAT = pathlib.Path("/proc/stat")
TRIES = 10
Result = TypeVar("Result")


class Processors(NamedTuple):
    """The work of all processors since the machine was started, in ticks of the kernel."""

    busy: int
    stolen: int

    @classmethod
    def now(cls) -> "Processors":
        """Read it."""
        words = STAT.read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = (int(word) for word in words[:8])
        return cls(user + nice + system + irq + softirq, steal)

    def stolen_since(self, before: "Processors") -> float:
        """Return the share that was taken of the time that processors were wanted."""
        stolen = self.stolen - before.stolen
        wanted = self.busy - before.busy + stolen
        return stolen / wanted if wanted else 0.0


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let the caller say what is measured again."""
    parser.add_argument(
        "--most-stolen",
        type=share,
        default=1.0,
        help="make a run again, up to ten times in all, if the hypervisor took more than this "
        "share of the processor time that was wanted, such as 0.02, and take the one that lost "
        "least; default: never",
    )


def share(text: str) -> float:
    """Return a number of 0 to 1, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: want a share of 0 to 1, such as 0.02")
    return value


def quietly(
    name: str,
    run: Callable[[], Result],
    most: float,
    hung: Callable[[Result], bool] = lambda result: result is None,
) -> Tuple[Result, List[float]]:
    """Run until no more than `most` was taken, `TRIES` times at the most.

    Return what the run gave from which the least was taken, and what share was taken from each. One
    that hung counts at once: it loses little, as it does nothing.
    """
    results: List[Result] = []
    stolen: List[float] = []
    while True:
        before = Processors.now()
        results.append(run())
        stolen.append(round(Processors.now().stolen_since(before), 4))
        if hung(results[-1]):
            return results[-1], stolen
        kept = stolen.index(min(stolen))
        if stolen[kept] <= most:
            return results[kept], stolen
        again = len(stolen) < TRIES
        then = "again" if again else f"of {TRIES} runs the one that lost {stolen[kept]:.1%} counts"
        print(
            f"{name}: {stolen[-1]:.1%} of the processor time went to others; {then}",
            file=sys.stderr,
            flush=True,
        )
        if not again:
            return results[kept], stolen
