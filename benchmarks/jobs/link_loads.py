"""The load of the busiest link of a lab in a step: by the shape of a job, and counted."""

import statistics
from typing import Any, Dict, List, Optional, Sequence

from benchmarks.jobs.frameworks import FRAMEWORKS
from benchmarks.lab import lab_job, ranked
from bytescheduler._advise import links
from bytescheduler._advise.shape import Shape

Loads = Dict[str, Optional[float]]  # models each way, by arm; None: nothing is known


def median(runs: Sequence[Optional[float]]) -> Optional[float]:
    """Return the median of the runs that have a number; None: none has."""
    known = [run for run in runs if run is not None]
    return statistics.median(known) if known else None


def shape_of(arm: str, framework: str, shape: Shape) -> Shape:
    """Return the shape that an arm gives to a job of `shape`: with its servers where they are."""
    if framework in FRAMEWORKS:
        return ranked.shape_of(FRAMEWORKS[framework].arms[arm], shape)
    return shape.direct if lab_job.is_direct(arm) else shape


def _load(arm: str, framework: str, shape: Shape, *, host_copy: bool) -> Optional[float]:
    if framework in FRAMEWORKS:
        of = FRAMEWORKS[framework].arms[arm]
        if not of.servers:
            return links.ring_load(shape) if of.is_stock else None
    return links.busiest_load(shape_of(arm, framework, shape), host_copy=host_copy)


def of_arms(arms: Sequence[str], framework: str, shape: Shape) -> Dict[str, Loads]:
    """Return the loads by the shape, with a copy of the model from each worker or each host."""
    return {
        name: {arm: _load(arm, framework, shape, host_copy=host_copy) for arm in arms}
        for name, host_copy in (("a copy a worker", False), ("a copy a host", True))
    }


def lines(result: Dict[str, Any]) -> List[str]:
    """Return a table of a replay's counted loads in Markdown; none if nothing was counted.

    Older results have no counts.
    """
    counted = {
        cell["name"]: {arm: median(of) for arm, of in cell.get("link_models", {}).items()}
        for cell in result["cells"]
    }
    if all(load is None for of in counted.values() for load in of.values()):
        return []
    arms = list(next(iter(counted.values())))
    head = ["models on the busiest link, each way, a step", *arms]
    by_shape = {f"by the shape, {name}": of for name, of in result["loads"].items()}
    rows = [
        [name, *("–" if of[arm] is None else f"{of[arm]:.2f}" for arm in arms)]
        for name, of in {**counted, **by_shape}.items()
    ]
    table = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return ["", table[0], "|---" * len(head) + "|", *table[1:]]
