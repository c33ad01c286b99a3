"""The lanes: the steps of each, what a step needs, and which of them may start."""

from typing import Collection, Dict, List, NamedTuple, Sequence, Tuple

__all__ = ["LANES", "Step", "all_needs", "check", "startable"]


class Step(NamedTuple):
    """A target of the Makefile, as a step of a lane.

    Attributes
    ----------
    name : str
        The target.
    needs : tuple of str
        The steps of the same lane that end before this one starts.
    load : float
        The share of the machine's processors that the step keeps busy: 0.5 for jobs that mostly
        wait, 1 for a step that uses all.  The loads of foreground steps add up to 1 at most.
    background : bool
        The step runs niced, on the processor time that the others leave.  There is one at a time,
        since each uses all processors.  No test in it may depend on time.
    alone : bool
        Nothing else runs meanwhile.
    """

    name: str
    needs: "Tuple[str, ...]" = ()
    load: float = 1.0
    background: bool = False
    alone: bool = False


# Steps that compile in one build folder need each other: two builds at once would disturb both.
# Where several steps may start, the first does.
LANES: "Dict[str, List[Step]]" = {
    "quick": [
        Step("style", load=0.5),
        Step("python-units", load=0.5),
        Step("release-build", background=True),
        Step("release", ("release-build",)),
    ],
    "test": [
        Step("style", load=0.5),
        Step("own-codec", load=0.5),
        Step("python", ("own-codec",), load=0.5),
        Step("asan-build", background=True),
        Step("tsan-build", background=True),
        Step("release-build", ("own-codec",), background=True),
        Step("pythons", ("release-build",), load=0.5),
        Step("lint", ("asan-build",), background=True),
        Step("asan", ("asan-build",)),
        Step("fuzz", ("asan-build",), background=True),
        Step("tsan", ("tsan-build",)),
        Step("release", ("release-build",)),
        Step("python-serial", ("release-build",), alone=True),
    ],
    "nightly": [
        Step("nightly-release"),
        Step("nightly-gcc"),
        Step("nightly-pythons"),
        Step("nightly-oldest-torch"),
        Step("nightly-nccl"),
        Step("nightly-wheels"),
        Step("nightly-lint"),
        Step("nightly-launchers"),
        Step("nightly-rdma"),
        Step("nightly-torch"),
        Step("nightly-tensorflow"),
        Step("nightly-compression"),
        Step("nightly-huge"),
        Step("nightly-docs"),
        Step("nightly-fuzz"),
    ],
}


def check(steps: Sequence[Step]) -> None:
    """Raise ValueError unless each step can start at some time: no circle, no unknown need."""
    names = [step.name for step in steps]
    for step in steps:
        if names.count(step.name) > 1:
            raise ValueError(f"the step {step.name} stands twice in the lane")
        for need in step.needs:
            if need not in names:
                raise ValueError(f"{step.name} needs {need}, which is no step of the lane")
        if not 0 < step.load <= 1:
            raise ValueError(f"{step.name} has a load of {step.load}; it is above 0, and 1 at most")
    done: List[str] = []
    while len(done) < len(steps):
        ready = [
            step.name for step in steps if step.name not in done and set(step.needs) <= {*done}
        ]
        if not ready:
            circle = ", ".join(name for name in names if name not in done)
            raise ValueError(f"these steps need each other in a circle: {circle}")
        done += ready


def all_needs(name: str, steps: Sequence[Step]) -> "List[str]":
    """Return the steps that a step needs, and those that they need, each once."""
    (needs,) = (step.needs for step in steps if step.name == name)
    found: List[str] = []
    for need in needs:
        found += [other for other in (*all_needs(need, steps), need) if other not in found]
    return found


def _fits(step: Step, running: Sequence[Step]) -> bool:
    """Return whether a step may run beside those that run now."""
    if step.alone or any(other.alone for other in running):
        return not running
    if step.background:
        return not any(other.background for other in running)
    load = sum(other.load for other in running if not other.background)
    return load + step.load <= 1


def startable(
    waiting: Sequence[Step], running: Sequence[Step], done: Collection[str]
) -> "List[Step]":
    """Return the waiting steps that start now: ready, and beside each other in the table's order.

    A step that must run alone waits until no other step is left that can run before it.
    """
    chosen: List[Step] = []
    ready = [step for step in waiting if set(step.needs) <= set(done)]
    for step in sorted(ready, key=lambda step: step.alone):
        if _fits(step, [*running, *chosen]):
            chosen.append(step)
    return chosen
