"""Draw what a benchmark's JSON says: python -m benchmarks.jobs.plot replay.json replay.svg.

Of a replay step times, only of some arms if they are named behind the files (stock,p3,ours);
best-ddp is the bucket of stock DDP that suits best.  Of `small`, `train` and `urgent` each figure's
medians by arm, but of `train --compression` the accuracy over the seconds of training; of `scale` a
step over the number of workers; of `shapes` the shares of the ideal. `throughput` and
`benchmarks.engine.reduce` draw their own (``--draw``).
"""

import json
import math
import pathlib
import sys
from typing import Any, Callable, Dict, List, Tuple

from benchmarks.lab import picture
from benchmarks.pytorch import arms as torch_arms

NAMES = {
    "stock": "MXNet dist_sync",
    "p3": "MXNet P3",
    "ours-fifo": "bytescheduler, in partitions,\nfirst come first served",
    "ours-off": "bytescheduler,\nwhole, first come first served",
    "kvstore": "bytescheduler,\non MXNet's own servers",
    "ddp": "stock DDP, 25 MB",
    "best-ddp": "stock DDP, best bucket",
    "ours": "bytescheduler",
    "ours-tuned": "bytescheduler,\ntuned by itself",
}


def times_of(cell: Dict[str, Any]) -> Dict[str, float]:
    """Return the seconds of a step by the name of the arm; none of one that hung or did not run."""
    times = cell.get("step_s", {})
    named = dict.fromkeys([*NAMES, *times])
    return {NAMES.get(arm, arm): times[arm] for arm in named if times.get(arm)}


def draw(axes: Any, cell: Dict[str, Any]) -> None:  # noqa: ANN401 - no types
    """Draw one model's bars, a line at what is physically possible, and marks at what is simulated.

    Older results have nothing simulated.
    """
    times = times_of(cell)
    best = (NAMES["ours"], NAMES["ours-tuned"])
    colours = ["#2a7f62" if name in best else "#b8bec4" for name in times]
    bars = axes.barh(list(times), list(times.values()), color=colours)
    axes.bar_label(bars, [f"{time:.2f} s" for time in times.values()], padding=4)
    axes.axvline(cell["ideal_s"], color="black", linestyle=":", linewidth=1)
    simulated = {NAMES[arm]: time for arm, time in cell.get("simulated_s", {}).items()}
    marks = {name: time for name, time in simulated.items() if name in times}
    axes.plot(list(marks.values()), list(marks), "|", color="#e08214", ms=12, mew=2)
    axes.set_xlim(0, max(*times.values(), *marks.values(), 0) * 1.25)
    axes.set_title(cell["name"], fontsize=9)


def of_replay(replay: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw each model of a replay."""
    cells = [cell for cell in replay["cells"] if times_of(cell)]
    columns = min(2, len(cells))
    rows = -(-len(cells) // columns)
    height = 0.5 + 0.42 * max(len(times_of(cell)) for cell in cells)
    what = "dotted: the physical limit"
    if any("simulated_s" in cell for cell in cells):
        what += "; marks: simulated"
    figure, grid = picture.subplots(
        rows, columns, figsize=(4.5 * columns, height * rows), sharey=True, squeeze=False
    )
    for axes in grid.flat[len(cells) :]:
        axes.set_visible(False)
    for axes, cell in zip(grid.flat, cells):
        draw(axes, cell)
    grid.flat[0].invert_yaxis()
    figure.supxlabel(
        f"seconds a training step, 2 workers, 2 servers, {replay['rate']} links ({what})",
        fontsize=9,
    )
    return figure


def figures_of(of_arm: Dict[str, Any]) -> Dict[str, float]:
    """Return an arm's numbers by name, with those of what is in it."""
    figures = {}
    for name, value in of_arm.items():
        if isinstance(value, dict):
            inner = figures_of(value)
            figures.update({f"{name} {inner_name}": inner[inner_name] for inner_name in inner})
        elif isinstance(value, (int, float)):
            figures[name] = value
    return figures


def of_medians(result: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw bars of the arms for each figure that any of them has."""
    arms = {arm: figures_of(of_arm) for arm, of_arm in result["medians"].items() if of_arm}
    names = list(dict.fromkeys(name for of_arm in arms.values() for name in of_arm))
    size = (3.4 * len(names), 0.8 + 0.3 * len(arms))
    figure, grid = picture.subplots(1, len(names), figsize=size, sharey=True, squeeze=False)
    for axes, name in zip(grid.flat, names):
        values = [of_arm.get(name, 0) for of_arm in arms.values()]
        bars = axes.barh(list(arms), values, color="#2a7f62")
        axes.bar_label(bars, [f"{value:.4g}" if value else "" for value in values], padding=4)
        axes.set_xlim(0, max(values) * 1.3)
        axes.set_title(name.replace("_", " "), fontsize=9)
    grid.flat[0].invert_yaxis()
    return figure


def of_curves(result: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw the accuracy of each arm over the time of training, and the line that counts."""
    figure, axes = picture.subplots(figsize=(7, 4))
    for arm, of_arm in result["medians"].items():
        if of_arm:
            seconds, accuracies = zip(*of_arm["curve"])
            axes.plot(seconds, accuracies, ".-", label=NAMES.get(arm, arm.partition("-")[2]))
    axes.set_xlabel(f"seconds of training {result['network']}, {result['rate']} links")
    axes.set_ylabel("accuracy")
    picture.label_ends(axes)
    axes.axhline(result["enough"], color="black", linestyle=":", linewidth=1)
    return figure


def of_scale(result: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw how long a step takes with more and more workers, and the ideal."""
    rows = result["rows"]
    figure, axes = picture.subplots(figsize=(4.5, 3))
    workers = [row["workers"] for row in rows]
    axes.loglog(workers, [row["step_s"] for row in rows], "o-", color="#2a7f62", label="a step")
    axes.loglog(workers, [row["ideal_s"] for row in rows], "k:", label="the physical limit")
    axes.set_xlabel("workers")
    axes.set_ylabel("seconds, simulated")
    axes.legend(frameon=False)
    return figure


# The arms of a comparison by shape, from pale to strong.
_COLOURS = {"stock": "#d3d8dc", "p3": "#98a4ad", "kvstore": "#8cc5ae", "ours": "#2a7f62"}


def of_shapes(result: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw the share of the ideal that each arm reaches, by the shape of the job."""
    rows = [row for row in result["shapes"] if times_of(row)]
    arms = [arm for arm in NAMES if any(row["step_s"].get(arm) for row in rows)]
    figure, axes = picture.subplots(figsize=(8, 0.6 + 0.2 * len(rows) * (len(arms) + 1)))
    for number, arm in enumerate(arms):
        shares = [row["ideal_s"] / row["step_s"].get(arm, math.inf) for row in rows]
        places = [row * (len(arms) + 1) + number for row in range(len(rows))]
        name = NAMES[arm].replace("\n", " ")
        bars = axes.barh(places, shares, height=1, color=_COLOURS.get(arm), label=name)
        axes.bar_label(bars, [f"{share:.2f}" if share else "" for share in shares], fontsize=7)
    middles = [row * (len(arms) + 1) + (len(arms) - 1) / 2 for row in range(len(rows))]
    axes.set_yticks(middles, [row["name"] for row in rows], fontsize=8)
    axes.axvline(1, color="black", linestyle=":", linewidth=1, zorder=0)
    axes.set_xlim(0, 1.1)
    axes.set_ylim(len(rows) * (len(arms) + 1), -1.5)
    axes.set_xlabel("the shortest possible step / a step", fontsize=9)
    axes.legend(frameon=False, fontsize=8, ncol=len(arms), loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _is_shapes(result: Dict[str, Any]) -> bool:
    return any(times_of(row) for row in result.get("shapes", []))


def _is_replay(result: Dict[str, Any]) -> bool:
    return any(times_of(cell) for cell in result.get("cells", []))


def _is_medians(result: Dict[str, Any]) -> bool:
    # Others have all their figures by size, store or the like.
    arms = [of_arm for of_arm in result.get("medians", {}).values() if of_arm]
    return any(isinstance(value, (int, float)) for of_arm in arms for value in of_arm.values())


def _is_curves(result: Dict[str, Any]) -> bool:
    return "reached_s" in result


def _is_scale(result: Dict[str, Any]) -> bool:
    rows = result.get("rows", [])
    return bool(rows) and all({"workers", "step_s", "ideal_s"} <= row.keys() for row in rows)


Result = Dict[str, Any]
# Other benchmarks have results of the same outlines.
KINDS: Tuple[Tuple[Callable[[Result], bool], Callable[[Result], Any]], ...] = (
    (_is_replay, of_replay),
    (_is_curves, of_curves),
    (_is_medians, of_medians),
    (_is_scale, of_scale),
    (_is_shapes, of_shapes),
)


def _with_best_ddp(of_arm: Dict[str, Any]) -> Dict[str, Any]:
    known = {arm: seconds for arm, seconds in of_arm.items() if arm in torch_arms.ARMS}
    best = torch_arms.best_ddp(known)
    return of_arm if best is None else {**of_arm, "best-ddp": best}


def only(result: Result, arms: List[str], path: str) -> Result:
    """Return a replay's result with some of its arms.

    Raises
    ------
    SystemExit
        It has none of that name.
    """
    cells = []
    for cell in result["cells"]:
        of_arm = _with_best_ddp(cell.get("step_s", {}))
        if times_of(cell):
            cells.append({**cell, "step_s": {arm: of_arm[arm] for arm in arms if arm in of_arm}})
    for arm in arms:
        if not any(arm in cell["step_s"] for cell in cells):
            raise SystemExit(f"{path} has no arm {arm!r}")
    return {**result, "cells": cells}


def main(words: List[str]) -> None:
    """Read a benchmark's JSON and write an SVG."""
    paths, arms = words[:2], words[2:]
    if len(paths) != 2 or len(arms) > 1:
        raise SystemExit(__doc__)
    result = json.loads(pathlib.Path(paths[0]).read_text())
    if arms:
        if not _is_replay(result):
            raise SystemExit(f"{paths[0]}: arms can be chosen of a replay only")
        result = only(result, arms[0].split(","), paths[0])
    drawn = next((draws for is_kind, draws in KINDS if is_kind(result)), None)
    if drawn is None:
        raise SystemExit(f"{paths[0]}: of none of the benchmarks that this draws\n{__doc__}")
    picture.save(drawn(result), paths[1])


if __name__ == "__main__":
    main(sys.argv[1:])
